#include "host/socket/gpu_socket_server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "flashmob/error.h"
#include "flashmob/gpu.h"
#include "vfio/bus_error_guard.h"

namespace flashmob::gpu {
namespace {

// Nothing wakes the server's thread when a doorbell is rung.
constexpr std::uint64_t kLongestSleepNs = 50'000;
// A kernel that runs by itself needs the thread for messages alone, and to notice that it has gone down.
constexpr std::uint64_t kLongestWaitNs = 100'000'000;
constexpr std::uint64_t kPublishEveryNs = 250'000'000;
// Turns of the engine between two looks at the sockets, which are system calls.
constexpr unsigned kTurnsPerLook = 8;
constexpr unsigned kAcceptsPerLook = 4;

timespec time_of(std::uint64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

std::int64_t peer_of(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
}

}  // namespace

GpuSocketServer::GpuSocketServer(const DeviceConfig& config, std::string path, std::string engine_text,
                                 const ServedEngine::MachineMaker& make_machine)
    : path_(std::move(path)),
      engine_text_(std::move(engine_text)),
      listener_(path_),
      stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      start_ns_(clock_.now_ns()) {
  if (!stop_event_)
    throw ConfigError("cannot serve '" + path_ + "': " + std::strerror(errno) +
                      "; raise the limit of open files (ulimit -n)");
  served_ = std::make_unique<ServedEngine>(config, clock_, kMaxClients, make_machine);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "fm-gpu-socket");
    loop();
  });
}

GpuSocketServer::~GpuSocketServer() { stop(); }

void GpuSocketServer::stop() {
  if (!thread_.joinable()) return;
  (void)eventfd_write(stop_event_.get(), 1);
  thread_.join();
  listener_.close();
}

GpuServerStats GpuSocketServer::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void GpuSocketServer::loop() {
  while (!stopping_) {
    bool works = true;
    for (unsigned i = 0; i < kTurnsPerLook && works; ++i) works = served_->let_run();
    look_at_sockets(longest_wait_ns(works));
    if (served_->lost())
      for (auto& [id, client] : clients_) dismiss(id, client);
    look_for_cut_memory();
    forget_gone();
    publish(false);
  }
  for (auto& [id, client] : clients_) dismiss(id, client);
  while (!clients_.empty()) {
    served_->let_run();
    forget_gone();
  }
  publish(true);
  served_.reset();
}

std::uint64_t GpuSocketServer::longest_wait_ns(bool engine_works) const {
  if (engine_works) return 0;
  const auto waits = [](const auto& each) { return each.second.leaving; };
  const bool by_itself = served_->machine().runs_by_itself();
  const bool needs_look = by_itself ? std::any_of(clients_.begin(), clients_.end(), waits) : !clients_.empty();
  return needs_look ? kLongestSleepNs : kLongestWaitNs;
}

void GpuSocketServer::look_at_sockets(std::uint64_t wait_ns) {
  std::vector<pollfd> fds{{stop_event_.get(), POLLIN, 0}, {served_->lost() ? -1 : listener_.get(), POLLIN, 0}};
  std::vector<std::uint64_t> ids;
  for (auto& [id, client] : clients_) {
    if (client.leaving) continue;
    fds.push_back({client.session->fd(), POLLIN, 0});
    ids.push_back(id);
  }
  const timespec timeout = time_of(wait_ns);
  if (ppoll(fds.data(), fds.size(), &timeout, nullptr) <= 0) return;
  stopping_ = fds[0].revents != 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Client& client = clients_.at(ids[i]);
    if (fds[i + 2].revents != 0 && !client.session->serve()) dismiss(ids[i], client);
  }
  if (fds[1].revents != 0) accept_clients();
}

void GpuSocketServer::accept_clients() {
  // Whoever still waits keeps the listener readable, and comes after the clients that are in.
  for (unsigned i = 0; i < kAcceptsPerLook; ++i) {
    vfio::UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket && (errno == EMFILE || errno == ENFILE) && spare_) {
      // The waiting client must be turned away, or the listener would stay readable and this thread spin.
      spare_.reset();
      turn_away(vfio::UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
                "the server has too many open files: raise its limit (ulimit -n)");
      spare_ = vfio::UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
      continue;
    }
    if (!socket) return;
    if (clients_.size() >= kMaxClients && !make_room())
      turn_away(std::move(socket), "the server has " + std::to_string(kMaxClients) + " clients, as many as it can");
    else
      begin(std::move(socket));
  }
}

// A client that has not said anything yet gives way to the next one, the oldest first.
bool GpuSocketServer::make_room() {
  const auto silent = std::find_if(clients_.begin(), clients_.end(), [](const auto& each) {
    return !each.second.leaving && !each.second.session->described();
  });
  if (silent == clients_.end()) return false;
  silent->second.session->give_up("it said nothing, and another client wants its place");
  dismiss(silent->first, silent->second);
  forget_gone();
  return clients_.size() < kMaxClients;
}

// The reply to what it is about to ask.
void GpuSocketServer::turn_away(vfio::UniqueFd socket, const std::string& why) {
  ++refused_;
  if (!socket) return;
  vfio::Header header{};
  header.command = static_cast<std::uint16_t>(wire::Command::describe);
  header.flags = vfio::kTypeReply | vfio::kFlagError;
  header.error = EBUSY;
  vfio::MessageSocket(std::move(socket), wire::kMaxMessageBytes).start_send(header, std::as_bytes(std::span(why)));
}

void GpuSocketServer::begin(vfio::UniqueFd socket) {
  std::vector<bool> taken(kMaxClients, false);
  for (const auto& [id, client] : clients_) taken[client.session->controller()] = true;
  const auto controller = static_cast<std::uint32_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
  Client& client = clients_[next_client_++];
  client.pid = peer_of(socket.get());
  client.before = served_->engine().counts(controller);
  client.session = std::make_unique<GpuSocketSession>(*served_, controller, engine_text_, std::move(socket));
}

void GpuSocketServer::dismiss(std::uint64_t id, Client& client) {
  if (std::exchange(client.leaving, true)) return;
  const std::string& why = client.session->reason();
  last_event_ = "client " + std::to_string(id) + " (process " + std::to_string(client.pid) +
                ") has gone: " + (why.empty() ? "the server disconnected it" : why);
  client.session->leave();
}

void GpuSocketServer::look_for_cut_memory() {
  const std::uint64_t hits = vfio::BusErrorGuard::hits();
  if (std::exchange(bus_errors_seen_, hits) == hits) return;
  for (auto& [id, client] : clients_) {
    if (client.leaving || !client.session->has_cut_memory()) continue;
    client.session->give_up("it cut memory short that it shares");
    dismiss(id, client);
  }
}

void GpuSocketServer::forget_gone() {
  if (std::erase_if(clients_, [](auto& each) { return each.second.leaving && each.second.session->gone(); }) != 0)
    publish(true);
}

void GpuSocketServer::publish(bool now) {
  const std::uint64_t now_ns = clock_.now_ns();
  if (!now && now_ns - published_ns_ < kPublishEveryNs) return;
  published_ns_ = now_ns;
  GpuServerStats stats;
  stats.uptime_s = static_cast<double>(now_ns - start_ns_) * 1e-9;
  for (const auto& [id, client] : clients_) {
    const GpuSocketSession& session = *client.session;
    const controller::IoCounters counts = served_->engine().counts(session.controller());
    stats.clients.push_back({.client = id,
                             .pid = client.pid,
                             .queues = session.queues(),
                             .mapped_bytes = session.mapped_bytes(),
                             .read_commands = counts.read_commands - client.before.read_commands,
                             .write_commands = counts.write_commands - client.before.write_commands,
                             .read_bytes = counts.read_bytes - client.before.read_bytes,
                             .written_bytes = counts.written_bytes - client.before.written_bytes});
  }
  stats.clients_seen = next_client_ - 1;
  stats.clients_refused = refused_;
  const EngineTotals totals = served_->engine().totals();
  stats.completions = totals.completions;
  if (totals.completions != 0)
    stats.mean_lateness_ns = static_cast<double>(totals.lateness_sum_ns) / static_cast<double>(totals.completions);
  stats.last_event = last_event_;
  stats.lost = served_->lost();
  if (stats.lost) stats.last_event = "the engine's kernel has gone down: " + served_->why_lost();
  const std::lock_guard lock(mutex_);
  stats_ = std::move(stats);
}

std::unique_ptr<GpuServer> serve(const DeviceConfig& config, const std::string& path, const std::string& backend) {
  if (backend == "threads")
    throw ConfigError("backend = \"threads\" is not possible for an engine: use \"auto\", \"cuda\" or \"fibres\"");
  const BackendInfo found = choose_backend(backend, backend == "fibres" ? "auto" : "real");
  if (found.backend == Backend::cuda)
    return std::make_unique<GpuSocketServer>(config, path, "the engine runs on " + found.device, make_engine_machine);
  const std::string why = backend == "fibres" ? "asked for" : found.reason.substr(0, found.reason.find(';'));
  return std::make_unique<GpuSocketServer>(
      config, path, why + ": the engine runs as fibres on the CPU, in real time, far slower than on a GPU",
      make_fibre_machine);
}

}  // namespace flashmob::gpu
