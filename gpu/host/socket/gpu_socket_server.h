// The one implementation of GpuServer: a socket, its clients, and the engine, all on one thread. A client that is slow,
// hostile or dead holds up nobody: sockets are never waited for, and the engine goes on while a client's queues end.
//
// The constructor, stop() and the destructor belong to one thread; stats() may be called by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "flashmob/gpu_server.h"
#include "host/socket/gpu_socket_session.h"
#include "host/socket/served_engine.h"
#include "vfio/unique_fd.h"
#include "vfio/unix_listener.h"

namespace flashmob::gpu {

class GpuSocketServer final : public GpuServer {
 public:
  GpuSocketServer(const DeviceConfig& config, std::string path, std::string engine_text,
                  const ServedEngine::MachineMaker& make_machine);
  ~GpuSocketServer() override;
  GpuSocketServer(const GpuSocketServer&) = delete;
  GpuSocketServer& operator=(const GpuSocketServer&) = delete;

  void stop() override;
  GpuServerStats stats() const override;
  const std::string& engine() const override { return engine_text_; }
  std::string address() const override { return "gpu-socket:" + path_; }

 private:
  struct Client {
    std::unique_ptr<GpuSocketSession> session;
    std::int64_t pid = 0;
    bool leaving = false;
    controller::IoCounters before;  // what this controller's earlier clients did
  };

  void loop();
  void look_at_sockets(std::uint64_t wait_ns);
  std::uint64_t longest_wait_ns(bool engine_works) const;
  void accept_clients();
  void turn_away(vfio::UniqueFd socket, const std::string& why);
  void begin(vfio::UniqueFd socket);
  bool make_room();
  void dismiss(std::uint64_t id, Client& client);
  void forget_gone();
  void look_for_cut_memory();
  void publish(bool now);

  const Clock clock_ = Clock::real();
  const std::string path_;
  const std::string engine_text_;
  vfio::UnixListener listener_;
  vfio::UniqueFd stop_event_;
  vfio::UniqueFd spare_;  // given up for a moment when descriptors run out, so that a client can be turned away
  std::unique_ptr<ServedEngine> served_;
  // Of the server's thread.
  std::map<std::uint64_t, Client> clients_;
  std::uint64_t next_client_ = 1;
  std::uint64_t bus_errors_seen_ = 0;
  std::uint64_t refused_ = 0;
  std::uint64_t published_ns_ = 0;
  std::string last_event_;
  bool stopping_ = false;

  const std::uint64_t start_ns_;
  mutable std::mutex mutex_;
  GpuServerStats stats_;
  std::thread thread_;
};

}  // namespace flashmob::gpu
