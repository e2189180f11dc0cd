// A controller as one engine thread sees it: its view of guest memory and scratch for walking data pointers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/fair_share.h"
#include "command_set/command_set.h"
#include "controller/controller.h"
#include "engine/move_queue.h"
#include "memory/address_space.h"
#include "memory/data_pointer.h"

namespace flashmob::engine {

using InterruptSink = std::function<void(std::uint16_t vector)>;

struct PortContext {
  PortContext(controller::Controller& c, const InterruptSink* sink, std::size_t workers = 0)
      : controller(c), reader(c.address_space()), interrupt(sink), slots_held(workers) {}

  controller::Controller& controller;
  memory::AddressSpace::Reader reader;
  const InterruptSink* interrupt;
  bool is_leaving = false;  // all that is there of its controller's is about to go
  std::uint64_t generation = ~std::uint64_t{0};  // of the address space when ring pointers were last resolved
  // Doorbell Buffer Config: the shadow doorbell and EventIdx pages, 0 while there are none.
  std::uint64_t shadow_iova = 0;
  std::uint64_t event_index_iova = 0;

  // Where to read doorbell word `index` of an I/O queue: the host's shadow page if it gave one, else `bar`.
  // Inside the reader's guard. The admin queues (words 0 and 1) always use the BAR.
  std::uint32_t* doorbell(std::uint32_t index, std::uint32_t* bar, std::uint32_t*& event_index) {
    event_index = nullptr;
    if (shadow_iova == 0 || index < 2) return bar;
    auto* shadow = reader.translate(shadow_iova + 4ull * index, 4, false);
    auto* event = reader.translate(event_index_iova + 4ull * index, 4, true);
    if (shadow == nullptr || event == nullptr) return bar;
    event_index = reinterpret_cast<std::uint32_t*>(event);
    return reinterpret_cast<std::uint32_t*>(shadow);
  }

  // The view of the thread that moves data: what it has to move for this controller. nullptr in other views.
  std::unique_ptr<MoveQueue> moves;
  // And what it has of the places for its commands that take long (media_transfers.h).
  FairShare::Holder zeroings, copies, progresses;

  // The dispatcher's view: slots that the controller's I/O has of each worker's, and its admin commands that were
  // fetched and are not answered.
  std::vector<std::uint32_t> slots_held;
  std::uint32_t admin_held = 0;
  // Every event request that may wait, and some commands besides.
  std::uint32_t admin_limit() const { return controller.config().async_event_limit + kAdminCommands; }
  static constexpr std::uint32_t kAdminCommands = 64;

  // I/O done for this controller by this thread; written by it, read by any.
  std::atomic<std::uint64_t> commands{0}, read_commands{0}, write_commands{0}, read_bytes{0}, written_bytes{0};

  void count(std::uint64_t reads, std::uint64_t read_sum, std::uint64_t writes, std::uint64_t write_sum) {
    add(read_commands, reads);
    add(read_bytes, read_sum);
    add(write_commands, writes);
    add(written_bytes, write_sum);
  }
  void count_fetched(std::uint64_t fetched) { add(commands, fetched); }

 private:
  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }
};

}  // namespace flashmob::engine
