// Threads that read and write where io_uring is forbidden, as containers often do: the same BlockPort, slower.
//
// Thread rule: WaitingThreads any thread; a port as BlockPort.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "media/block_store.h"

namespace flashmob::media {

class WaitingThreads {
 public:
  // A call that waits; what it returns is BlockDone::result. On several threads at once.
  using Transfer = std::function<std::int32_t(const BlockRequest&)>;

  explicit WaitingThreads(Transfer transfer) : transfer_(std::move(transfer)) {}
  ~WaitingThreads();
  WaitingThreads(const WaitingThreads&) = delete;
  WaitingThreads& operator=(const WaitingThreads&) = delete;

  // nullptr where threads cannot be had. Ports end before this does.
  std::unique_ptr<BlockPort> make_port(std::uint32_t depth);

 private:
  class Port;
  struct Work {
    Port* port;
    BlockRequest request;
  };
  static constexpr unsigned kThreads = 16;  // as many transfers are under way at once

  bool start();
  void run();

  Transfer transfer_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<Work> waiting_;  // a ring, with room for all ports
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace flashmob::media
