#include "transport/nvme_tcp/reactor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace flashmob::transport {
namespace {

constexpr int kBacklog = 256;
constexpr int kEventsPerRound = 64;
// Whoever still waits to be accepted keeps the listener ready, and comes after everybody else has been served.
constexpr int kAcceptsPerRound = 4;
// As many associations end in a round at most.
constexpr std::size_t kEndsPerRound = 32;
// Timers (keep alive, connections that never say who they are) are looked at this often when nothing else happens.
constexpr int kTickMs = 100;
// No more than this passes between two looks at the clock, as far as timers are concerned.
constexpr std::uint64_t kMostPassedMs = 5 * kTickMs;
// Where the process has no descriptor left, it is tried again after this time.
constexpr std::uint64_t kAcceptPauseMs = 500;
// Descriptors that the process needs for everything else.
constexpr std::uint64_t kOtherDescriptors = 128;

std::uint64_t now_ms() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000 + static_cast<std::uint64_t>(t.tv_nsec) / 1'000'000;
}

// The border of the loop: what cannot be done for a host (there is no memory, no thread), or what we got wrong, ends
// that host's connection and nobody else's.
template <class Work>
auto for_host(Connection& connection, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception&) {
    connection.close();
  }
  return decltype(work())();
}

std::uint64_t connections_at_most(const NvmeTcpTargetOptions& options) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return options.max_connections;
  const std::uint64_t possible = limit.rlim_cur > 2 * kOtherDescriptors
                                     ? limit.rlim_cur - kOtherDescriptors
                                     : std::max<std::uint64_t>(limit.rlim_cur / 2, 1);
  return std::min<std::uint64_t>(options.max_connections, possible);
}

[[noreturn]] void fail(const std::string& what, const TargetContext& context) {
  throw ConfigError("cannot " + what + " " + context.options.address + ":" + std::to_string(context.options.port) +
                    " (" + std::strerror(errno) + "); choose another --tcp ADDRESS:PORT");
}

}  // namespace

Reactor::Reactor(TargetContext& context) : context_(context), places_(connections_at_most(context.options)) {
  looked_ms_ = context_.now_ms = now_ms();
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  context_.wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (epoll_ < 0 || context_.wake_fd < 0) fail("set up polling for", context_);
  // Edge-triggered, so that a wake-up need not be read away.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = &context_.wake_fd}};
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, context_.wake_fd, &event);
  listen();
}

Reactor::~Reactor() {
  close_all();
  if (listener_ >= 0) ::close(listener_);
  if (context_.wake_fd >= 0) ::close(context_.wake_fd);
  if (epoll_ >= 0) ::close(epoll_);
}

void Reactor::listen() {
  sockaddr_storage address{};
  socklen_t length = 0;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address);
  const char* const text = context_.options.address.c_str();
  if (::inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(context_.options.port);
    length = sizeof(*v4);
  } else if (::inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(context_.options.port);
    length = sizeof(*v6);
    context_.ipv6 = true;
  } else {
    throw ConfigError("the NVMe/TCP address \"" + context_.options.address +
                      "\" is neither an IPv4 nor an IPv6 address; write for example 127.0.0.1:4420 or [::1]:4420");
  }
  listener_ = ::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener_ < 0) fail("open a socket for", context_);
  const int on = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0) fail("bind", context_);
  if (::listen(listener_, kBacklog) != 0) fail("listen on", context_);
  length = sizeof(address);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  context_.port = ntohs(context_.ipv6 ? v6->sin6_port : v4->sin_port);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &listener_}};
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &event);
}

Reactor::PeerKey Reactor::key_of(const sockaddr_storage& address) {
  PeerKey key{};
  const std::uint8_t* bytes = nullptr;
  std::size_t count = 0;
  bool is_loopback = false;
  if (address.ss_family == AF_INET) {
    bytes = reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr);
    count = 4;
  } else if (address.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&v6);
    bytes = v6.s6_addr + (is_v4 ? 12 : 0);
    count = is_v4 ? 4 : key.size();
    is_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
  }
  if (count == 4) is_loopback = bytes[0] == IN_LOOPBACKNET;
  if (is_loopback)
    key[0] = IN_LOOPBACKNET;
  else if (bytes != nullptr)
    std::memcpy(key.data(), bytes, count);
  return key;
}

void Reactor::accept_new() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    sockaddr_storage from{};
    socklen_t length = sizeof(from);
    const int socket = ::accept4(listener_, reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket >= 0) {
      add(socket, key_of(from));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return pause_accepting(errno);
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

// Who waits to be accepted keeps the listener ready: looked at again at once, it would cost a core.
void Reactor::pause_accepting(int error) {
  accept_again_ms_ = context_.now_ms + kAcceptPauseMs;
  epoll_event event{.events = 0, .data = {.ptr = &listener_}};
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &event);
  if (told_of_descriptors_) return;
  told_of_descriptors_ = true;
  std::fprintf(stderr,
               "flashmob: NVMe/TCP at %s:%u cannot accept another connection now (%s); raise the limit of open files "
               "(ulimit -n)\n",
               context_.options.address.c_str(), context_.port, std::strerror(error));
}

void Reactor::resume_accepting() {
  accept_again_ms_ = 0;
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &listener_}};
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &event);
}

void Reactor::adopt(int socket) { add(socket, {}); }

void Reactor::add(int socket, const PeerKey& from) {
  try {
    std::weak_ptr<Peer>& known = peers_[from];
    std::shared_ptr<Peer> peer = known.lock();
    if (!peer) known = peer = std::make_shared<Peer>();
    FairShare::Answer answer = places_.take(peer->connections, 1);
    if (answer != FairShare::Answer::given && make_room(*peer, answer)) answer = places_.take(peer->connections, 1);
    if (answer == FairShare::Answer::given) {
      FairShare::Portion place(places_, peer->connections, 1);
      if (connections_.size() == connections_.capacity()) connections_.reserve(2 * connections_.size() + 16);
      auto connection = std::make_shared<Connection>(context_, associations_, socket, peer, std::move(place));
      const int on = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      epoll_event event{.events = EPOLLIN, .data = {.ptr = connection.get()}};
      connection->registered_interest = EPOLLIN;
      if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) == 0) connections_.push_back(std::move(connection));
      return;
    }
    if (peer.use_count() == 1) peers_.erase(from);
  } catch (const std::bad_alloc&) {
  }
  ::close(socket);
}

bool Reactor::make_room(const Peer& peer, FairShare::Answer why) {
  Connection* best = nullptr;
  std::uint64_t best_ms = UINT64_MAX;
  for (const auto& connection : connections_) {
    if (connection->closed()) continue;
    // Where there is no place at all, one of those goes who have more than they who come.
    const bool of_others = &connection->peer() != &peer;
    if (of_others &&
        (why == FairShare::Answer::over_share || connection->peer().connections.held <= peer.connections.held + 1))
      continue;
    const std::uint64_t since_ms = connection->idle_since_ms();
    if (since_ms >= best_ms) continue;
    best = connection.get();
    best_ms = since_ms;
  }
  if (best == nullptr) return false;
  best->close();
  return true;
}

// Time in which we stood still (a stopped process, a machine that was asleep) is not the hosts': what they sent in it
// is yet to be read, and no patience with them may end by it.
void Reactor::pass_time() {
  const std::uint64_t now = now_ms();
  context_.now_ms += std::min(now - looked_ms_, kMostPassedMs);
  looked_ms_ = now;
}

bool Reactor::round(int timeout_ms) {
  std::array<epoll_event, kEventsPerRound> events;
  const int count = look_at_sockets(events, timeout_ms);
  if (context_.sleeping.load(std::memory_order_relaxed)) context_.sleeping.store(false, std::memory_order_relaxed);
  pass_time();
  if (accept_again_ms_ != 0 && context_.now_ms >= accept_again_ms_) resume_accepting();
  bool worked = count > 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.ptr == &listener_) {
      accept_new();
    } else if (event.data.ptr != &context_.wake_fd) {
      // Connections are removed at the round's end only, so the pointer is good.
      auto& connection = *static_cast<Connection*>(event.data.ptr);
      connection.has_room = (event.events & EPOLLOUT) != 0;
      const bool gone = (event.events & (EPOLLHUP | EPOLLERR)) != 0;
      if (gone && (connection.interest() & EPOLLIN) == 0)
        connection.close();  // nothing that it still sent would be looked at
      else if (gone || (event.events & EPOLLIN) != 0)
        for_host(connection, [&] { connection.on_readable(); });
    }
  }
  return serve() || worked;
}

// Dates what is found. A look that found all sockets empty was no earlier than the reading of the clock before it; what
// ended a sleep came no earlier than the thread could have gone on. Where nobody tells when that was, it may have come
// when the thread fell asleep.
int Reactor::look_at_sockets(std::span<epoll_event> events, int timeout_ms) {
  DoorLooks& looks = context_.looks;
  looks.began_ns = context_.now_ns();
  looks.arrived_ns = looked_ns_;
  const auto most = static_cast<int>(events.size());
  int count = ::epoll_wait(epoll_, events.data(), most, 0);
  if (count == 0 && timeout_ms != 0) {
    using clock = std::chrono::steady_clock;
    const clock::time_point asked = clock::now();
    const std::optional<std::uint64_t> before_ns = run_delay_.read_ns();
    looks.arrived_ns = looks.began_ns;
    count = ::epoll_wait(epoll_, events.data(), most, timeout_ms);
    const std::uint64_t woke_ns = context_.now_ns();
    const std::optional<std::uint64_t> after_ns = run_delay_.read_ns();
    waited_ns_ += static_cast<std::uint64_t>((clock::now() - asked).count());
    if (before_ns && after_ns)
      looks.arrived_ns = std::max(looks.began_ns, woke_ns - std::min(woke_ns, *after_ns - *before_ns));
    looks.began_ns = looks.arrived_ns;
    // A completion would have ended the sleep as well.
    reaped_ns_ = std::max(reaped_ns_, looks.arrived_ns);
  }
  // Where there were more than asked for, the others' looks were earlier.
  looks.full_ns = looks.arrived_ns;
  if (count < most) looks.full_ns = looked_ns_ = looks.began_ns;
  return count;
}

bool Reactor::serve() {
  bool rang = false;
  // New commands first: the engine works on them while we send what it did before.
  for (const auto& connection : connections_) rang |= connection->ring();
  const bool worked = reap();
  for (const auto& connection : connections_) for_host(*connection, [&] { connection->advance(); });
  serve_waiting();
  end_associations();
  for (const auto& connection : connections_) rang |= connection->ring();
  if (rang && context_.engine.sleeping().load(std::memory_order_relaxed) != 0) context_.engine.wake();
  bool more = worked || rang;
  for (const auto& connection : connections_) {
    more |= for_host(*connection, [&] { return connection->flush(); });
    update_interest(*connection);
  }
  if (!context_.looks.delays_ns.empty()) {
    context_.engine.door_delays().add(context_.looks.delays_ns);
    context_.looks.delays_ns.clear();
  }
  return remove_closed() || more;
}

// Takes what the engine has completed. Where it shares our core it has been interrupted at its first completions: let
// it go on, so that many answers share what sending them costs.
bool Reactor::reap() {
  bool worked = false;
  for (;;) {
    bool reaped = false;
    bool busy = false;
    context_.looks.posted_ns = std::exchange(reaped_ns_, context_.now_ns());
    for (const auto& connection : connections_) {
      reaped |= for_host(*connection, [&] { return connection->reap(); });
      busy |= connection->is_io() && connection->is_busy();  // an admin queue's may wait for an event, for ever
    }
    worked |= reaped;
    if (!reaped || !busy || !context_.gathers) return worked;
    std::this_thread::yield();
  }
}

// In turns: who had to wait goes first in the next round.
void Reactor::serve_waiting() {
  context_.pool_exhausted = false;
  std::size_t next = next_waiter_;
  for (std::size_t i = 0; context_.waiting_for_buffers != 0 && i < connections_.size(); ++i, ++next) {
    if (next >= connections_.size()) next = 0;
    Connection& connection = *connections_[next];
    const bool first_in_line = !context_.pool_exhausted;
    for_host(connection, [&] { connection.serve_waiting(); });
    if (first_in_line) next_waiter_ = context_.pool_exhausted ? next : next + 1;
  }
}

// I/O queues live only as long as their association, and not across a reset of its controller or a failed proof of who
// its host is.
void Reactor::end_associations() {
  for (const auto& association : associations_) {
    if (association->dead() || association->resetting() || association->queues_end()) {
      for (const auto& connection : connections_) {
        if (connection->association() == association.get() && (association->dead() || connection->is_io()))
          connection->close();
      }
    }
    try {
      association->advance();
    } catch (const std::exception&) {
      association->kill();
    }
  }
}

bool Reactor::remove_closed() {
  const auto closed = std::erase_if(connections_, [](const auto& connection) { return connection->closed(); });
  const auto is_dead = [](const auto& association) { return association->dead(); };
  const bool ended = std::any_of(associations_.begin(), associations_.end(), is_dead) && remove_dead();
  if (closed != 0 || ended) std::erase_if(peers_, [](const auto& peer) { return peer.second.expired(); });
  return ended;
}

bool Reactor::remove_dead() {
  const auto is_over = [this](const Association& association) {
    return association.dead() && std::none_of(connections_.begin(), connections_.end(), [&](const auto& connection) {
             return connection->association() == &association;
           });
  };
  // Together, but not so many that others wait for long.
  std::array<std::unique_ptr<Association>, kEndsPerRound> ended;
  std::size_t count = 0, kept = 0;
  for (auto& association : associations_) {
    if (count != ended.size() && is_over(*association))
      ended[count++] = std::move(association);
    else
      std::swap(associations_[kept++], association);
  }
  associations_.resize(kept);
  Association::detach(context_.engine, std::span(ended).first(count));
  return count != 0;
}

void Reactor::update_interest(Connection& connection) {
  if (connection.closed()) return;
  const std::uint32_t wanted = connection.interest();
  if (wanted == connection.registered_interest) return;
  epoll_event event{.events = wanted, .data = {.ptr = &connection}};
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.socket(), &event);
  connection.registered_interest = wanted;
}

void Reactor::sleep() {
  // An engine thread that completes something either finds this set, or we find its completion: both sides store first,
  // then fence, then look.
  context_.sleeping.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  round(serve() ? 0 : kTickMs);
}

void Reactor::close_all() {
  // What is dead already has no queue deleted for it.
  for (const auto& association : associations_) association->kill();
  for (const auto& connection : connections_) connection->close();
  connections_.clear();
  Association::detach(context_.engine, associations_);
  associations_.clear();
}

}  // namespace flashmob::transport
