// A thread that moves the bytes of NVMe/TCP queues: spins while there is something to do, sleeps in epoll until the
// network, a doorbell or another thread wakes it.
//
// add(), find() and remove() belong to the pump's own thread, which other threads reach with run() and post(). The
// address space's guard is held during a round and never while the thread sleeps or calls out.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "initiator/nvme_tcp/tcp_queue.h"
#include "memory/address_space.h"

namespace flashmob::initiator {

class TcpPump {
 public:
  // Called on the pump's thread, outside the guard.
  class Events {
   public:
    virtual void interrupt(std::uint16_t vector) = 0;
    // Once for each queue whose connection or ring is gone.
    virtual void queue_failed(const std::string& reason) = 0;

   protected:
    ~Events() = default;
  };

  // `sleepers` counts sleeping pumps, for doorbells to know when they must wake one.
  TcpPump(memory::AddressSpace& space, Events& events, std::uint64_t idle_spin_ns,
          std::atomic<std::uint32_t>& sleepers);
  // Ends the thread and the queues.
  ~TcpPump();
  TcpPump(const TcpPump&) = delete;
  TcpPump& operator=(const TcpPump&) = delete;

  // Any thread. post() returns at once, run() when `task` has been done; not from the pump's own thread.
  void post(std::function<void()> task);
  void run(const std::function<void()>& task);
  void wake();

  // The pump's thread.
  void add(std::unique_ptr<TcpQueue> queue);
  TcpQueue* find(std::uint16_t qid);
  std::unique_ptr<TcpQueue> remove(std::uint16_t qid);
  // One round of one queue, between two rounds of all.
  void poll_once(TcpQueue& queue);
  // Ends every command of every queue.
  void lose_all(const std::string& reason);

 private:
  struct Entry {
    std::unique_ptr<TcpQueue> queue;
    bool failed = false;  // told to events_
    bool wants_output = false;
  };

  void loop();
  void do_tasks();
  bool round(bool look);
  void report();
  void tick(std::uint64_t now_ns);
  void sleep_until_work();
  void watch(Entry& entry);

  memory::AddressSpace::Reader reader_;
  Events& events_;
  std::uint64_t idle_spin_ns_;
  std::atomic<std::uint32_t>& sleepers_;
  int epoll_ = -1;
  int event_ = -1;
  std::vector<Entry> entries_;
  std::mutex mutex_;  // guards tasks_
  std::vector<std::function<void()>> tasks_;
  std::atomic<bool> has_tasks_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace flashmob::initiator
