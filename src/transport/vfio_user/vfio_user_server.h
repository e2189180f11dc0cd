// The vfio-user door: hosts attach to the SSD as to a PCI Express device over a UNIX socket (docs/interop/vfio-user).
//
// One socket is one door; each client that connects gets a controller of its own on the same subsystem, and loses it
// when the connection ends, however it ends. One thread serves the sockets of all clients; it touches no I/O. Doorbells
// are shared memory that the engine polls. A doorbell stored while the engine's threads sleep cannot wake them: it is
// seen when their sleep ends, at most EngineConfig::idle_sleep_ns later. One written by a message wakes them at once.
//
// The constructor, stop() and the destructor belong to one thread; clients() may be called by any.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "controller/rights.h"
#include "controller/subsystem.h"
#include "engine/engine.h"
#include "flashmob/config.h"
#include "vfio/unique_fd.h"
#include "vfio/unix_listener.h"

namespace flashmob::transport {

class Session;

struct VfioUserEvent {
  enum class Kind : std::uint8_t { connected, disconnected, refused };
  Kind kind;
  std::uint64_t client;  // counts from 1
  std::string reason;  // why it went or was refused, as part of a sentence
};

struct VfioUserOptions {
  unsigned max_clients = 64;
  // Of one process, and of one user who is not the server's own.
  unsigned max_clients_per_process = 32;
  unsigned max_clients_per_foreign_user = 32;
  // How long a client may owe its first message, or the rest of one that it has begun. Where the door is full, those
  // that have not said anything yet give way at once.
  std::chrono::milliseconds patience{10'000};
  // False: clients write doorbells by messages. That costs each of them a few microseconds and wakes a sleeping engine
  // at once; hosts that use Doorbell Buffer Config write few of them.
  bool map_doorbells = true;
  vfio::SocketAccess socket_access = vfio::SocketAccess::owner;
  // Of every client: who may open the socket is decided by its file's mode.
  controller::HostRights rights = {};
  // The one user who may come in, whoever has come by the socket; nobody else may, nor root.
  std::optional<uid_t> only_user = {};
  // Called on the server's thread when clients come and go. What it throws is lost.
  std::function<void(const VfioUserEvent&)> on_event = {};
};

struct VfioUserClient {
  std::uint64_t client;
  std::uint16_t cntlid;
  bool ready;  // its driver has enabled the controller
  std::uint64_t shared_bytes;  // memory that the device can reach
  std::uint64_t unshared_bytes;  // memory that it cannot, because it came without a descriptor
  std::uint64_t messages;
};

class VfioUserServer {
 public:
  // Listens at `path` and serves from then on. Subsystem and engine outlive the server, and the engine runs for as
  // long. Throws ConfigError.
  VfioUserServer(controller::Subsystem& subsystem, engine::Engine& engine, const ControllerConfig& config,
                 std::string path, VfioUserOptions options = {});
  ~VfioUserServer();
  VfioUserServer(const VfioUserServer&) = delete;
  VfioUserServer& operator=(const VfioUserServer&) = delete;

  // Disconnects every client, takes their controllers off the engine and removes the socket.
  void stop();
  const std::string& path() const { return path_; }
  // The clients that have a controller, as of a moment ago.
  std::vector<VfioUserClient> clients() const;

 private:
  struct Client {
    std::unique_ptr<Session> session;
    std::uint32_t watched = EPOLLIN;  // for what the socket is watched
    std::uint64_t messages = 0;  // as of the last look
    std::chrono::nanoseconds awaited_since;  // of `lived_`
    pid_t pid = 0;
    uid_t uid = 0;
    bool announced = false;  // it has a controller, and on_event knows
  };

  void loop();
  void turn(bool& stopping);
  void accept_clients();
  void begin(vfio::UniqueFd socket);
  // Why a client may not come in; nullptr if it may.
  const char* reason_to_refuse(pid_t pid, uid_t uid);
  void drop_hung_up();
  void rest_from_accepting();
  void end_rest();
  void pass_time();
  void look_for_awaited();
  // `event`: one of its descriptors besides the socket is readable.
  void serve(std::uint64_t id, bool event = false);
  void drop(std::uint64_t id);
  void drop(std::uint64_t id, std::string why);
  void look_for_cut_memory();
  int longest_wait_ms() const;
  bool is_resetting(std::uint64_t id) const;
  void serve_resetting();
  void report(VfioUserEvent::Kind kind, std::uint64_t id, const std::string& reason);
  void watch(int operation, int fd, std::uint32_t events, std::uint64_t tag);
  void publish();

  controller::Subsystem& subsystem_;
  engine::Engine& engine_;
  ControllerConfig config_;
  std::string path_;
  VfioUserOptions options_;
  vfio::UnixListener listener_;
  vfio::UniqueFd epoll_;
  vfio::UniqueFd stop_event_;
  vfio::UniqueFd spare_;  // given up for a moment when descriptors run out, so that a client can be turned away
  std::map<std::uint64_t, Client> clients_;  // server's thread only
  std::uint64_t next_client_ = 1;
  std::uint64_t bus_errors_seen_ = 0;
  std::chrono::nanoseconds lived_{};  // without what passed while this thread stood still
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  bool rests_ = false;  // the listener is not watched, because descriptors have run out
  bool has_said_so_ = false;
  std::chrono::steady_clock::time_point rests_until_;
  mutable std::mutex published_mutex_;
  std::vector<VfioUserClient> published_;
  std::thread thread_;
};

}  // namespace flashmob::transport
