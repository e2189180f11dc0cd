// One host of the simulated device: it makes and deletes queues, submits commands, looks at completions when it
// pleases, aborts, resets, and now and then does what no host should. For one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/rng.h"
#include "driver/dma_memory.h"
#include "nvme/command.h"
#include "simulation/command_stream.h"
#include "simulation/oracle.h"
#include "simulation/transfer.h"
#include "support/virtual_device.h"

namespace flashmob::simulation {

// Something is wrong; what() says what.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Receives a line for everything that happens; empty when nobody listens.
using Trace = std::function<void(const std::string&)>;

struct Counters {
  std::uint64_t commands = 0;
  std::uint64_t completions = 0;
  std::uint64_t lost = 0;
  std::uint64_t digest = 0;  // of every completion and its time
  std::map<std::uint16_t, std::uint64_t> statuses;
};

class HostSimulation {
 public:
  HostSimulation(suite::Host& host, Oracle& oracle, std::uint64_t seed, Counters& counters, const Trace& trace);

  // Enables the controller and makes a few queues.
  void start();
  // One random action.
  void act();
  // Consumes completions everywhere until nothing is in flight. Throws Failure when something never completes.
  void drain();
  std::uint64_t outstanding() const;
  // The earliest moment of a command in flight.
  std::uint64_t oldest() const;
  // Another host has reset the whole subsystem: everything in flight is lost.
  void subsystem_was_reset();
  void reset_subsystem();
  bool is_reset();
  // Reads every block of every namespace and checks it.
  void read_everything();
  void set_attached(std::uint32_t nsid, bool attached);

 private:
  struct Cq {
    std::uint16_t id = 0;
    std::uint32_t entries = 0;
    std::unique_ptr<driver::DmaMemory> ring;
    std::uint32_t head = 0;
    std::uint32_t phase = 1;
    const nvme::Cqe& at(std::uint32_t index) const { return reinterpret_cast<const nvme::Cqe*>(ring->data())[index]; }
  };
  struct Sq {
    std::uint16_t id = 0;
    std::uint16_t cqid = 0;
    std::uint32_t entries = 0;
    std::unique_ptr<driver::DmaMemory> ring;
    std::uint32_t tail = 0;
    std::uint32_t rung = 0;
    std::uint32_t head = 0;  // the last SQHD seen
    std::uint16_t next_cid = 0;
    bool half_open = false;
    std::map<std::uint16_t, std::unique_ptr<Command>> commands;
  };

  bool chance(unsigned one_in) { return rng_.below(one_in) == 0; }
  void say(const std::string& text) const;
  [[noreturn]] void fail(const std::string& text) const;
  Sq* random_sq();
  Cq* random_cq();

  // Queues.
  nvme::Status admin(nvme::AdminOpcode opcode, std::uint32_t cdw10, std::uint32_t cdw11, std::uint64_t prp1 = 0);
  void create_cq();
  void create_sq();
  void delete_sq(std::uint16_t sqid);
  void delete_cq();
  void misuse_queues();
  // I/O.
  void submit();
  bool submit_one(Sq& sq);
  void push_out_half(Sq& sq);
  std::uint32_t free_slots(const Sq& sq) const;
  void ring(Sq& sq);
  void ring(const Cq& cq);
  void store_doorbell(std::uint32_t word, std::uint32_t value);
  std::uint32_t reap(Cq& cq, std::uint32_t limit);
  void complete(const Cq& cq, const nvme::Cqe& entry);
  // The rest.
  void abort_something();
  void garbage_doorbells();
  void reset();
  void lose_everything();
  void begin_life();
  void listen();
  void ask_something();
  void check_event(std::uint32_t dw0);
  nvme::Status read_now(driver::QueuePair& pair, std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks);
  std::string identity_of(const Sq& sq, std::uint16_t cid) const;

  suite::Host& host_;
  Oracle& oracle_;
  Rng rng_;
  Counters& counters_;
  const Trace& trace_;
  Attachments attachments_{};
  SlotPool slots_;
  CommandStream stream_;
  std::map<std::uint16_t, Cq> cqs_;
  std::map<std::uint16_t, Sq> sqs_;
  bool rang_garbage_ = false;
  unsigned life_ = 0;          // counts resets, so that late callbacks know that they are late
  std::uint32_t aborts_ = 0;   // in flight
};

}  // namespace flashmob::simulation
