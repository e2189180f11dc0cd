#include "transport/vfio_user/vfio_user_server.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "transport/vfio_user/session.h"
#include "vfio/message_socket.h"

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
// How old clients() may be while nothing happens.
constexpr int kPublishEveryMs = 200;

}  // namespace

VfioUserServer::VfioUserServer(controller::Subsystem& subsystem, engine::Engine& engine, const ControllerConfig& config,
                               std::string path, VfioUserOptions options)
    : subsystem_(subsystem),
      engine_(engine),
      config_(config),
      path_(std::move(path)),
      options_(std::move(options)),
      listener_(path_),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      next_client_(kFirstClient) {
  if (!epoll_ || !stop_event_)
    throw ConfigError("cannot serve '" + path_ + "': " + std::strerror(errno) +
                      "; raise the limit of open files (ulimit -n)");
  config_.validate();
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
  std::array<epoll_event, 64> events;
  bool stopping = false;
  while (!stopping) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), clients_.empty() ? -1 : kPublishEveryMs);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
      if (tag == kStopTag) {
        stopping = true;
      } else if (tag == kListenerTag) {
        accept_clients();
      } else if ((tag & 1) != 0) {
        // The client may have gone in this very round.
        if (const auto found = clients_.find(tag >> 1); found != clients_.end()) found->second.session->on_event();
        serve(tag >> 1);
      } else {
        serve(tag >> 1);
      }
    }
    publish();
  }
  while (!clients_.empty()) drop(clients_.begin()->first);
  publish();
}

void VfioUserServer::accept_clients() {
  for (;;) {
    vfio::UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket && (errno == EMFILE || errno == ENFILE) && spare_) {
      // The waiting client must be turned away, or the listener would stay readable and this thread spin.
      spare_.reset();
      vfio::UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
      spare_ = vfio::UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
      report(VfioUserEvent::Kind::refused, 0, "the limit of open files was reached");
      continue;
    }
    if (!socket) return;
    if (clients_.size() >= options_.max_clients) {
      report(VfioUserEvent::Kind::refused, 0, "there are as many clients as allowed");
      continue;
    }
    const std::uint64_t id = next_client_++;
    const int fd = socket.get();
    auto session = std::make_unique<Session>(subsystem_, engine_, config_, std::move(socket), options_.map_doorbells);
    session->set_watch(
        [this, id](int event, bool add) { watch(add ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, event, EPOLLIN, event_tag(id)); });
    clients_[id].session = std::move(session);
    watch(EPOLL_CTL_ADD, fd, EPOLLIN, socket_tag(id));
  }
}

void VfioUserServer::serve(std::uint64_t id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
  const bool alive = client.session->serve(kMessagesPerTurn);
  if (!client.announced && client.session->controller() != nullptr) {
    client.announced = true;
    report(VfioUserEvent::Kind::connected, id, "");
  }
  if (!alive) {
    drop(id);
    return;
  }
  if (client.writing != client.session->wants_to_write()) {
    client.writing = !client.writing;
    watch(EPOLL_CTL_MOD, client.session->fd(), client.writing ? EPOLLOUT : EPOLLIN, socket_tag(id));
  }
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
  if (options_.on_event) options_.on_event({kind, id, reason});
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
