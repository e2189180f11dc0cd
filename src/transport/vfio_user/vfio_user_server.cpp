#include "transport/vfio_user/vfio_user_server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/check.h"
#include "transport/vfio_user/session.h"
#include "vfio/bus_error_guard.h"
#include "vfio/message_socket.h"
#include "vfio/peer_event.h"

namespace flashmob::transport {
namespace {

// What an event is about: the client's number and which of its descriptors.
constexpr std::uint64_t kListenerTag = 0;
constexpr std::uint64_t kStopTag = 1;
constexpr std::uint64_t socket_tag(std::uint64_t client) { return client << 1; }
constexpr std::uint64_t event_tag(std::uint64_t client) { return client << 1 | 1; }
constexpr std::uint64_t kFirstClient = 1;  // its tags are 2 and 3

// Messages of one client before the others get their turn.
constexpr unsigned kMessagesPerTurn = 64;
// Whoever still waits at the door keeps the listener readable, and comes after the clients that are in.
constexpr unsigned kAcceptsPerTurn = 4;
// How old clients() may be while nothing happens.
constexpr int kPublishEveryMs = 200;
// Somebody who looks that often and finds that more time has passed stood still.
constexpr std::chrono::milliseconds kMostPassed{2 * kPublishEveryMs};
// How long nobody is accepted where that has failed.
constexpr std::chrono::milliseconds kRest{100};
// How soon a reset that is going on is looked at again.
constexpr int kResetLookMs = 1;
constexpr int kHeldLookMs = static_cast<int>(UnmaskPace::kWindow.count());

}  // namespace

VfioUserServer::VfioUserServer(controller::Subsystem& subsystem, engine::Engine& engine, const ControllerConfig& config,
                               std::string path, VfioUserOptions options)
    : subsystem_(subsystem),
      engine_(engine),
      config_(config),
      path_(std::move(path)),
      options_(std::move(options)),
      listener_(path_, options_.socket_access),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      next_client_(kFirstClient) {
  if (!epoll_ || !stop_event_)
    throw ConfigError("cannot serve '" + path_ + "': " + std::strerror(errno) +
                      "; raise the limit of open files (ulimit -n)");
  config_.validate();
  vfio::prepare_events();
  watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenerTag);
  watch(EPOLL_CTL_ADD, stop_event_.get(), EPOLLIN, kStopTag);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "fm-vfio-user");
    loop();
  });
}

VfioUserServer::~VfioUserServer() { stop(); }

void VfioUserServer::stop() {
  if (!thread_.joinable()) return;
  (void)eventfd_write(stop_event_.get(), 1);
  thread_.join();
  listener_.close();
}

std::vector<VfioUserClient> VfioUserServer::clients() const {
  const std::lock_guard lock(published_mutex_);
  return published_;
}

void VfioUserServer::watch(int operation, int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return;
  // The kernel may be out of memory; what was never added need not be removed.
  FLASHMOB_CHECK(errno == ENOMEM || errno == ENOSPC || (operation == EPOLL_CTL_DEL && errno == ENOENT));
}

void VfioUserServer::loop() {
  bool stopping = false;
  while (!stopping || !clients_.empty()) {
    try {
      if (stopping)
        drop(clients_.begin()->first);
      else
        turn(stopping);
      publish();
    } catch (const std::exception&) {
      // Memory is lacking. What was not done is done in the next turn.
    }
  }
}

void VfioUserServer::turn(bool& stopping) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), longest_wait_ms());
  pass_time();
  for (int i = 0; i < count; ++i) {
    const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
    if (tag == kStopTag) {
      stopping = true;
    } else if (tag == kListenerTag) {
      accept_clients();
    } else if ((tag & 1) != 0) {
      // The client may have gone in this very round.
      serve(tag >> 1, true);
    } else if ((events[static_cast<std::size_t>(i)].events & EPOLLHUP) != 0 && is_resetting(tag >> 1)) {
      drop(tag >> 1, "it hung up");
    } else {
      serve(tag >> 1);
    }
  }
  end_rest();
  look_for_awaited();
  serve_resetting();
  for (const auto& [id, client] : clients_) (void)client.session->serve_held();
  look_for_cut_memory();
}

void VfioUserServer::accept_clients() {
  for (unsigned i = 0; i < kAcceptsPerTurn; ++i) {
    vfio::UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket && errno != EAGAIN && errno != EWOULDBLOCK) return rest_from_accepting();
    if (!socket) return;
    has_said_so_ = false;
    try {
      begin(std::move(socket));
    } catch (const std::exception& error) {
      report(VfioUserEvent::Kind::refused, 0, error.what());
    }
  }
}

// The listener stays readable while descriptors are lacking: one client is turned away, and the others wait a little.
void VfioUserServer::rest_from_accepting() {
  if ((errno == EMFILE || errno == ENFILE) && spare_) {
    spare_.reset();
    vfio::UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
    spare_ = vfio::UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  if (!std::exchange(has_said_so_, true))
    report(VfioUserEvent::Kind::refused, 0, "the limit of open files was reached");
  rests_ = true;
  rests_until_ = std::chrono::steady_clock::now() + kRest;
  watch(EPOLL_CTL_MOD, listener_.get(), 0, kListenerTag);
}

void VfioUserServer::end_rest() {
  if (!rests_ || std::chrono::steady_clock::now() < rests_until_) return;
  rests_ = false;
  if (!spare_) spare_ = vfio::UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  watch(EPOLL_CTL_MOD, listener_.get(), EPOLLIN, kListenerTag);
}

void VfioUserServer::begin(vfio::UniqueFd socket) {
  ucred peer{};
  socklen_t peer_bytes = sizeof(peer);
  (void)getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes);
  if (const char* why = reason_to_refuse(peer.pid, peer.uid); why != nullptr)
    return report(VfioUserEvent::Kind::refused, 0, why);
  const std::uint64_t id = next_client_++;
  const int fd = socket.get();
  auto session = std::make_unique<Session>(subsystem_, engine_, config_, std::move(socket), options_.map_doorbells,
                                           options_.rights);
  session->set_watch([this, id](int event, bool add) {
    watch(add ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, event, std::uint32_t{EPOLLIN} | std::uint32_t{EPOLLET}, event_tag(id));
  });
  Client& client = clients_[id];
  client.session = std::move(session);
  client.awaited_since = lived_;
  client.pid = peer.pid;
  client.uid = peer.uid;
  watch(EPOLL_CTL_ADD, fd, EPOLLIN, socket_tag(id));
}

const char* VfioUserServer::reason_to_refuse(pid_t pid, uid_t uid) {
  const auto of_process = [&](const auto& held) { return held.second.pid == pid; };
  const auto of_user = [&](const auto& held) { return held.second.uid == uid; };
  if (options_.only_user && uid != *options_.only_user) return "this socket is another user's";
  if (clients_.size() >= options_.max_clients) drop_hung_up();
  // Processes of another PID namespace are all called 0.
  if (pid != 0 && std::count_if(clients_.begin(), clients_.end(), of_process) >= options_.max_clients_per_process)
    return "its process has as many clients as allowed";
  if (uid != geteuid() &&
      std::count_if(clients_.begin(), clients_.end(), of_user) >= options_.max_clients_per_foreign_user)
    return "its user has as many clients as allowed";
  if (clients_.size() < options_.max_clients) return nullptr;
  // They are in the order in which they came.
  const auto silent =
      std::find_if(clients_.begin(), clients_.end(), [](const auto& held) { return !held.second.announced; });
  if (silent == clients_.end()) return "there are as many clients as allowed";
  drop(silent->first, "it said nothing, and another client wants its place");
  return nullptr;
}

// Who comes after somebody who has gone need not wait until that has been heard.
void VfioUserServer::drop_hung_up() {
  std::vector<std::uint64_t> gone;
  for (const auto& [id, client] : clients_) {
    pollfd socket{.fd = client.session->fd(), .events = 0, .revents = 0};
    if (poll(&socket, 1, 0) == 1 && (socket.revents & POLLHUP) != 0) gone.push_back(id);
  }
  for (const std::uint64_t id : gone) drop(id, "it hung up");
}

// Time in which we stood still is not the clients': what they sent in it may be yet to be read.
void VfioUserServer::pass_time() {
  const auto now = std::chrono::steady_clock::now();
  lived_ += std::min<std::chrono::nanoseconds>(now - std::exchange(looked_, now), kMostPassed);
}

void VfioUserServer::look_for_awaited() {
  std::vector<std::uint64_t> late;
  for (auto& [id, client] : clients_) {
    const bool goes_on = std::exchange(client.messages, client.session->messages()) != client.session->messages();
    if (goes_on || !client.session->is_awaited())
      client.awaited_since = lived_;
    else if (lived_ - client.awaited_since > options_.patience)
      late.push_back(id);
  }
  for (const std::uint64_t id : late) drop(id, "it began a message and did not end it in time");
}

void VfioUserServer::serve(std::uint64_t id, bool event) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
  bool alive = false;
  // What one client makes fail, whatever it is, ends one connection.
  try {
    if (event) client.session->on_event();
    alive = client.session->serve(kMessagesPerTurn);
  } catch (const std::exception& error) {
    client.session->give_up(std::string("the server could not go on with it: ") + error.what());
  }
  if (!client.announced && client.session->controller() != nullptr) {
    client.announced = true;
    report(VfioUserEvent::Kind::connected, id, "");
  }
  if (!alive) {
    drop(id);
    return;
  }
  // What comes during a reset waits in the socket.
  const bool resets = client.session->is_resetting();
  const std::uint32_t wanted = resets ? 0u : client.session->wants_to_write() ? EPOLLOUT + 0u : EPOLLIN + 0u;
  if (std::exchange(client.watched, wanted) != wanted)
    watch(EPOLL_CTL_MOD, client.session->fd(), wanted, socket_tag(id));
}

void VfioUserServer::drop(std::uint64_t id, std::string why) {
  clients_.at(id).session->give_up(std::move(why));
  drop(id);
}

bool VfioUserServer::is_resetting(std::uint64_t id) const {
  const auto found = clients_.find(id);
  return found != clients_.end() && found->second.session->is_resetting();
}

int VfioUserServer::longest_wait_ms() const {
  if (clients_.empty()) return rests_ ? kPublishEveryMs : -1;
  const auto any = [this](auto is_so) {
    return std::any_of(clients_.begin(), clients_.end(), [&](const auto& held) { return is_so(*held.second.session); });
  };
  if (any([](const Session& session) { return session.is_held(); })) return kHeldLookMs;
  return any([](const Session& session) { return session.is_resetting(); }) ? kResetLookMs : kPublishEveryMs;
}

void VfioUserServer::serve_resetting() {
  std::vector<std::uint64_t> resetting;
  for (const auto& [id, client] : clients_)
    if (client.session->is_resetting()) resetting.push_back(id);
  for (const std::uint64_t id : resetting) serve(id);
}

void VfioUserServer::look_for_cut_memory() {
  const std::uint64_t hits = vfio::BusErrorGuard::hits();
  if (std::exchange(bus_errors_seen_, hits) == hits) return;
  std::vector<std::uint64_t> cut;
  for (const auto& [id, client] : clients_)
    if (client.session->has_cut_memory()) cut.push_back(id);
  for (const std::uint64_t id : cut) drop(id, "it cut memory short that it shares");
}

void VfioUserServer::drop(std::uint64_t id) {
  const auto found = clients_.find(id);
  const bool announced = found->second.announced;
  const std::string why = found->second.session->why();
  clients_.erase(found);
  // After the controller is gone, so that who hears of it may count on that.
  report(announced ? VfioUserEvent::Kind::disconnected : VfioUserEvent::Kind::refused, id,
         why.empty() ? "the server stops" : why);
}

void VfioUserServer::report(VfioUserEvent::Kind kind, std::uint64_t id, const std::string& reason) {
  if (!options_.on_event) return;
  try {
    options_.on_event({kind, id, reason});
  } catch (const std::exception&) {
    // It has no say in whom we serve.
  }
}

void VfioUserServer::publish() {
  std::vector<VfioUserClient> now;
  for (const auto& [id, client] : clients_) {
    const controller::Controller* controller = client.session->controller();
    if (controller == nullptr) continue;
    now.push_back({id, controller->cntlid(), controller->state() == controller::ControllerState::ready,
                   client.session->shared_bytes(), client.session->unshared_bytes(), client.session->messages()});
  }
  const std::lock_guard lock(published_mutex_);
  published_ = std::move(now);
}

}  // namespace flashmob::transport
