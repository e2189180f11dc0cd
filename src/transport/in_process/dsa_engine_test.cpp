// The whole engine on threads with the DSA copy engine over work queues in software: the data is right under load, with
// missing pages, errors and time-outs; nobody waits for copies in flight but those who must.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "controller/subsystem.h"
#include "driver/data_buffer.h"
#include "driver/nvme_driver.h"
#include "engine/dsa_copy_engine.h"
#include "engine/dsa_queue_model.h"
#include "engine/engine.h"
#include "nvme/opcode.h"
#include "transport/in_process/in_process_device.h"

namespace flashmob::transport {
namespace {

using engine::dsa::Fate;
using engine::dsa::ModelQueue;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint32_t kBlock = 512;
constexpr std::uint32_t kMaxBlocks = 24;  // three pages, so that a command is several copies
constexpr std::uint32_t kSlots = 32;  // commands in flight in a queue, each with blocks of its own

struct Shape {
  std::uint32_t units;
  std::uint32_t workers;
  const char* model;
  std::string media = "memory";
};

DeviceConfig config_of(const Shape& shape) {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = 4 << 20;
  config.subsystem.namespaces[0].media = shape.media;
  config.controller.max_queue_pairs = 8;
  config.controller.interrupt_vectors = 4;
  config.timing.model = shape.model;
  config.engine.units = shape.units;
  config.engine.workers = shape.workers;
  return config;
}

class Machine {
 public:
  using Setup = std::function<void(ModelQueue&)>;

  Machine(const Shape& shape, const Setup& setup, const engine::dsa::Options& options = {})
      : config_(config_of(shape)),
        subsystem_(config_.subsystem, config_.seed, config_.timing.unit_bytes),
        engine_(config_, clock_,
                [this, &setup, &options] {
                  auto queue = std::make_unique<ModelQueue>(engine::dsa::Pace::own_thread);
                  setup(*queue);
                  queues.push_back(queue.get());
                  return std::make_unique<engine::dsa::DsaCopyEngine>(std::move(queue), options);
                }),
        interrupts_(config_.controller.interrupt_vectors),
        controller_(subsystem_, config_.controller, engine_),
        door(controller_, {&engine_.sleeping(), [this] { engine_.wake(); }}, interrupts_) {
    engine_.attach(controller_, [this](std::uint16_t vector) { interrupts_.fire(vector); });
    engine_.start();
    driver = std::make_unique<driver::NvmeDriver>(
        door, driver::Waiter{[] { std::this_thread::yield(); }, [this] { return clock_.now_ns(); }});
    driver->enable();
  }
  ~Machine() {
    driver.reset();
    engine_.stop();
    engine_.detach(controller_);
  }

  engine::CopyReport copies() { return engine_.copies(); }
  std::uint64_t outstanding() const { return engine_.outstanding(); }

  std::vector<ModelQueue*> queues;

 private:
  DeviceConfig config_;
  Clock clock_ = Clock::real();
  controller::Subsystem subsystem_;
  engine::Engine engine_;
  driver::InterruptTable interrupts_;
  controller::Controller controller_;

 public:
  InProcessDevice door;
  std::unique_ptr<driver::NvmeDriver> driver;
};

nvme::Sqe command(nvme::NvmOpcode opcode, std::uint16_t cid, std::uint64_t lba, std::uint32_t blocks) {
  nvme::Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.cid = cid;
  sqe.nsid = 1;
  sqe.cdw10 = static_cast<std::uint32_t>(lba);
  sqe.cdw12 = blocks == 0 ? 0 : blocks - 1;
  return sqe;
}

// Writes and reads back random blocks, many commands at once, and compares every byte. Each command slot has blocks of
// its own, so what it reads is what it wrote last.
class Checker {
 public:
  Checker(Machine& machine, std::uint32_t index, std::uint64_t seed)
      : pair_(machine.driver->create_queue_pair({.sq_entries = kSlots + 1})),
        memory_(machine.door, kSlots * kStride),
        lists_(machine.door, kSlots, kMaxBlocks * kBlock + 4096),
        first_lba_(std::uint64_t{index} * kSlots * kMaxBlocks),
        rng_(seed),
        slots_(kSlots) {}

  void run(std::uint32_t commands) {
    for (std::uint16_t slot = 0; slot < kSlots; ++slot) start(slot);
    pair_.ring_sq();
    std::uint32_t ended = 0;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (pair_.outstanding() != 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << ended << " of " << commands;
      std::vector<std::uint16_t> over;
      pair_.reap(kSlots, [&](const nvme::Cqe& cqe) {
        ASSERT_EQ(cqe.status_phase >> 1, 0);
        over.push_back(cqe.cid);
      });
      pair_.ring_cq();
      for (const std::uint16_t slot : over) {
        check(slot);
        if (++ended + kSlots <= commands) start(slot);
      }
      pair_.ring_sq();
      if (over.empty()) std::this_thread::yield();
    }
  }

 private:
  static constexpr std::uint64_t kStride = 2 * 4 * 4096;  // what is written, and what is read

  struct Slot {
    bool reading = true;
    std::uint32_t offset = 0, blocks = 0;
  };

  std::byte* buffer(std::uint16_t slot, bool of_read) {
    return memory_.data() + slot * kStride + (of_read ? kStride / 2 : 0);
  }

  void start(std::uint16_t index) {
    Slot& slot = slots_[index];
    slot.reading = !slot.reading;
    if (!slot.reading) {
      slot.blocks = static_cast<std::uint32_t>(1 + rng_.below(kMaxBlocks));
      slot.offset = static_cast<std::uint32_t>(rng_.below(1024) * 4);
      std::byte* const data = buffer(index, false) + slot.offset;
      for (std::uint32_t i = 0; i < slot.blocks * kBlock; i += 64) {
        const std::uint64_t word = rng_.next();
        std::memcpy(data + i, &word, sizeof(word));
      }
    } else {
      std::memset(buffer(index, true), 0xEE, kStride / 2);
    }
    nvme::Sqe sqe = command(slot.reading ? nvme::NvmOpcode::read : nvme::NvmOpcode::write, index,
                            first_lba_ + index * kMaxBlocks, slot.blocks);
    const auto at = static_cast<std::uint64_t>(buffer(index, slot.reading) - memory_.data()) + slot.offset;
    lists_.describe(index, sqe, memory_.iova() + at, slot.blocks * kBlock);
    pair_.submit() = sqe;
  }

  void check(std::uint16_t index) {
    const Slot& slot = slots_[index];
    if (!slot.reading) return;
    const std::byte* const read = buffer(index, true);
    const std::size_t bytes = slot.blocks * kBlock;
    ASSERT_EQ(std::memcmp(read + slot.offset, buffer(index, false) + slot.offset, bytes), 0) << "slot " << index;
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xEE}; };
    ASSERT_TRUE(std::all_of(read, read + slot.offset, untouched));
    ASSERT_TRUE(std::all_of(read + slot.offset + bytes, read + kStride / 2, untouched));
  }

  driver::QueuePair& pair_;
  driver::DmaMemory memory_;
  driver::PrpLists lists_;
  std::uint64_t first_lba_;
  Rng rng_;
  std::vector<Slot> slots_;
};

// Misfortunes drawn from a seed, for the thread of one model queue.
std::function<Fate(const engine::dsa::Descriptor&)> misfortunes(std::uint64_t seed) {
  return [rng = std::make_shared<Rng>(seed)](const engine::dsa::Descriptor& d) {
    Fate fate;
    if (rng->below(50) == 0) fate.error = engine::dsa::Status::invalid_flags;
    if (d.opcode() == engine::dsa::Opcode::memory_move && rng->below(20) == 0)
      fate.fault_after = static_cast<std::uint32_t>(rng->below(d.size));
    if (rng->below(100) == 0) fate.delay = microseconds(rng->below(50));
    return fate;
  };
}

class DsaEngineTest : public testing::TestWithParam<Shape> {};

TEST_P(DsaEngineTest, TheDataIsRightUnderLoad) {
  std::uint64_t seed = 1;
  // A thread that stands for the device may have to wait long for a core.
  Machine machine(GetParam(), [&](ModelQueue& queue) { queue.fate = misfortunes(seed++); },
                  {.wait_timeout_ns = 60'000'000'000});
  std::vector<std::unique_ptr<Checker>> checkers;
  for (std::uint32_t i = 0; i < 2; ++i) checkers.push_back(std::make_unique<Checker>(machine, i, 10 + i));
  std::vector<std::thread> threads;
  for (auto& checker : checkers) threads.emplace_back([&checker] { checker->run(1500); });
  for (std::thread& thread : threads) thread.join();
  const engine::CopyReport report = machine.copies();
  EXPECT_EQ(report.engine, "dsa/wq0.0 shared");
  EXPECT_GT(report.counters.offloaded, report.counters.fallbacks);
  EXPECT_GT(report.counters.page_faults, 0u);
  EXPECT_GT(report.counters.errors, 0u);
  EXPECT_EQ(report.counters.lost, 0u);
  for (const ModelQueue* queue : machine.queues) EXPECT_EQ(queue->overflows, 0u);
}

TEST_P(DsaEngineTest, ADeviceThatStopsAnsweringIsReplacedByTheCpu) {
  Machine machine(GetParam(),
                  [](ModelQueue& queue) { queue.never_finishes = [](std::uint64_t number) { return number >= 40; }; },
                  {.wait_timeout_ns = 200'000'000});
  Checker(machine, 0, 4).run(1500);
  const engine::CopyReport report = machine.copies();
  EXPECT_GT(report.counters.offloaded, 0u);
  EXPECT_GT(report.counters.lost, 0u);
  EXPECT_GT(report.counters.fallbacks, report.counters.lost);
  EXPECT_TRUE(std::any_of(machine.queues.begin(), machine.queues.end(),
                          [](const auto* queue) { return queue->closed.load(); }));
}

// A device whose copies of one command start only when the test says so.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool is_open = true;
  std::atomic<bool> reached{false};

  Fate pass() {
    std::unique_lock lock(mutex);
    if (!is_open) reached = true;
    opened.wait(lock, [this] { return is_open; });
    return {};
  }
  void set(bool open) {
    const std::lock_guard lock(mutex);
    is_open = open;
    opened.notify_all();
  }
};

bool eventually(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

struct Gated {
  explicit Gated(const Shape& shape)
      : machine(shape, [this](ModelQueue& queue) { queue.fate = [this](const auto&) { return gate.pass(); }; },
                {.wait_timeout_ns = 60'000'000'000}) {}
  ~Gated() { gate.set(true); }

  // Submits a Read of one block and returns when its copy is the device's.
  void start_read(driver::QueuePair& pair, std::uint64_t iova) {
    // A round that began before the host's memory was mapped would end its copies before the next round begins. After
    // a command has come and gone the Read meets a later one.
    pair.submit() = command(nvme::NvmOpcode::flush, 0, 0, 0);
    pair.ring_sq();
    ASSERT_TRUE(eventually([&] { return pair.reap(1, [](const nvme::Cqe&) {}) == 1; }));
    pair.ring_cq();
    gate.set(false);
    nvme::Sqe sqe = command(nvme::NvmOpcode::read, 1, 0, 1);
    sqe.prp1 = iova;
    pair.submit() = sqe;
    pair.ring_sq();
    ASSERT_TRUE(eventually([&] { return gate.reached.load(); }));
  }

  Gate gate;
  Machine machine;
};

TEST_P(DsaEngineTest, OtherCommandsGoOnWhileCopiesAreInFlight) {
  Gated gated(GetParam());
  driver::QueuePair& pair = gated.machine.driver->create_queue_pair({.sq_entries = 8});
  driver::DmaMemory memory(gated.machine.door, 4096);
  gated.start_read(pair, memory.iova());
  pair.submit() = command(nvme::NvmOpcode::flush, 2, 0, 0);
  pair.ring_sq();
  std::vector<std::uint16_t> order;
  const auto reap = [&] {
    pair.reap(8, [&](const nvme::Cqe& cqe) {
      EXPECT_EQ(cqe.status_phase >> 1, 0);
      order.push_back(cqe.cid);
    });
    pair.ring_cq();
    return !order.empty();
  };
  ASSERT_TRUE(eventually(reap));
  EXPECT_EQ(order, std::vector<std::uint16_t>{2}) << "the Read waits for its copy, the Flush does not";
  gated.gate.set(true);
  EXPECT_TRUE(eventually([&] { return reap() && order.size() == 2; }));
}

// What the device meets there it would leave to the CPU, which then ends the process.
TEST_P(DsaEngineTest, AFileCutShortCostsItsReadsAlone) {
  constexpr std::uint64_t kThere = 1 << 20;
  const std::string path = testing::TempDir() + "fm-dsa-" + std::to_string(getpid()) + ".img";
  Shape shape = GetParam();
  shape.media = "file:" + path;
  Machine machine(shape, [](ModelQueue&) {});
  driver::QueuePair& pair = machine.driver->create_queue_pair({.sq_entries = 8});
  driver::DmaMemory memory(machine.door, 8192);
  const auto status_of = [&](std::uint64_t offset, std::uint32_t blocks) {
    nvme::Sqe sqe = command(nvme::NvmOpcode::read, 1, offset / kBlock, blocks);
    sqe.prp1 = memory.iova();
    sqe.prp2 = memory.iova() + 4096;
    pair.submit() = sqe;
    pair.ring_sq();
    std::uint16_t status = 0xFFFF;
    EXPECT_TRUE(eventually([&] {
      return pair.reap(1, [&](const nvme::Cqe& cqe) { status = static_cast<std::uint16_t>(cqe.status_phase >> 1); }) ==
             1;
    }));
    pair.ring_cq();
    return status & 0x07FF;
  };
  std::filesystem::resize_file(path, kThere);
  for (const std::uint32_t blocks : {1u, 16u}) {
    EXPECT_EQ(status_of(kThere, blocks), 0x0281) << "Unrecovered Read Error";
    EXPECT_EQ(status_of(0, blocks), 0);
  }
  std::filesystem::remove(path);
}

TEST_P(DsaEngineTest, UnmapWaitsForCopiesInFlight) {
  Gated gated(GetParam());
  driver::QueuePair& pair = gated.machine.driver->create_queue_pair({.sq_entries = 8});
  alignas(4096) static std::byte page[4096];
  constexpr std::uint64_t kIova = std::uint64_t{1} << 45;
  gated.machine.door.dma_map(kIova, page, sizeof(page));
  std::memset(page, 0xEE, sizeof(page));
  gated.start_read(pair, kIova);
  std::atomic<bool> unmapped{false};
  std::thread unmapper([&] {
    gated.machine.door.dma_unmap(kIova, sizeof(page));
    unmapped = true;
  });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(unmapped) << "the device may still write there";
  gated.gate.set(true);
  unmapper.join();
  EXPECT_EQ(page[0], std::byte{0}) << "the copy came first";
  EXPECT_TRUE(eventually([&] { return pair.has_completion(); }));
}

TEST_P(DsaEngineTest, AResetEndsCopiesInFlight) {
  Gated gated(GetParam());
  driver::QueuePair& pair = gated.machine.driver->create_queue_pair({.sq_entries = 8});
  auto memory = std::make_unique<driver::DmaMemory>(gated.machine.door, 4096);
  gated.start_read(pair, memory->iova());
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(10));
    gated.gate.set(true);
  });
  gated.machine.driver->disable();
  EXPECT_TRUE(gated.gate.is_open) << "the reset had to wait for it";
  opener.join();
  memory.reset();
  EXPECT_TRUE(eventually([&] { return gated.machine.outstanding() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Shapes, DsaEngineTest,
                         testing::Values(Shape{1, 0, "none"}, Shape{1, 0, "simple"}, Shape{1, 2, "none"},
                                         Shape{2, 1, "simple"}),
                         [](const auto& tested) {
                           const Shape& shape = tested.param;
                           return std::to_string(shape.units) + "units" + std::to_string(shape.workers) + "workers_" +
                                  shape.model;
                         });

}  // namespace
}  // namespace flashmob::transport
