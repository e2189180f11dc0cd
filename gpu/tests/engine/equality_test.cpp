// The GPU engine against the host engine: for equal arrivals, equal targets, statuses and data.
//
// A seeded stream of commands goes to a GPU engine on fibres, which records each batch that it fetched: when, what, and
// the targets. The same batches then arrive at a host engine at the same times, in virtual time, and its completions
// must come at exactly those targets, with the same statuses; afterwards media and buffers must be equal.
#include <algorithm>
#include <cstdlib>

#include "api/device.h"
#include "driver/nvme_driver.h"
#include "engine_rig.h"
#include "nvme/dataset.h"
#include "nvme/io_command.h"

namespace flashmob::gpu {
namespace {

using nvme::NvmOpcode;

constexpr std::uint32_t kQueues = 3;
constexpr std::uint64_t kNamespaceBytes = 256 << 10;
// Each command that can be in flight has a page for a list and three for data.
constexpr std::uint32_t kSlots = 32;
constexpr std::uint64_t kSlotBytes = 16 << 10;
constexpr std::uint64_t kHostBytes = kQueues * kSlots * kSlotBytes;

// When a command completed, and how.
struct Answer {
  std::uint64_t at_ns = 0;
  std::uint16_t status = 0;
};
using Name = std::pair<std::uint32_t, std::uint16_t>;  // of a command: queue and command identifier
using Answers = std::map<Name, Answer>;

// What the host puts into its memory before it submits a command: the twin's host must do so at that time, too.
struct Preparation {
  std::uint64_t offset;
  std::vector<std::byte> bytes;
  bool is_list;  // of addresses
};
using Preparations = std::multimap<Name, Preparation>;

// A host engine whose time goes on where the test says.
class HostTwin {
 public:
  explicit HostTwin(const TimingConfig& timing)
      : clock_(Clock::virtual_from(1'000'000)), device_(config(timing), clock_), driver_(device_.pci(), waiter()) {
    driver_.enable();
    memory_ = std::make_unique<driver::DmaMemory>(device_.pci(), kHostBytes);
    for (auto& queue : queues_) queue = &driver_.create_queue_pair({.sq_entries = 64});
  }
  ~HostTwin() {
    memory_.reset();
    driver_.disable();
  }

  std::uint64_t now_ns() const { return clock_.now_ns(); }
  std::byte* host() { return memory_->data(); }
  std::uint64_t iova(std::uint64_t offset) const { return memory_->iova() + offset; }
  std::byte* media(std::uint32_t nsid) { return device_.subsystem().info(nsid).current->base; }
  void reset_model() { device_.engine().model().reset(); }

  void submit(std::uint32_t queue, const nvme::Sqe& sqe) { queues_[queue]->submit() = sqe; }
  void ring(std::uint32_t queue) {
    queues_[queue]->ring_sq();
    poll();
    reap();
  }
  // Stops at every deadline of the engine, so that completions are seen when they are posted.
  void advance_to(std::uint64_t to_ns) {
    for (;;) {
      poll();
      reap();
      if (now_ns() >= to_ns) return;
      const std::uint64_t deadline_ns = device_.engine().actor_deadline_ns(0);
      clock_.advance_to(std::min(to_ns, std::max(deadline_ns, now_ns() + 1)));
    }
  }
  Answers answers;

 private:
  static DeviceConfig config(const TimingConfig& timing) {
    DeviceConfig config;
    config.subsystem.namespaces.clear();
    for (const std::uint32_t lba_bytes : {512u, 4096u}) {
      NamespaceConfig ns;
      ns.size_bytes = kNamespaceBytes;
      ns.lba_bytes = lba_bytes;
      config.subsystem.namespaces.push_back(ns);
    }
    config.controller.max_queue_pairs = kQueues + 1;
    config.controller.interrupt_vectors = 1;
    config.controller.max_transfer_bytes = EngineRig::kMaxTransfer;
    config.timing = timing;
    config.engine.wheel_shift = 0;  // completions at their targets to the nanosecond
    config.engine.copy = "memcpy";
    return config;
  }
  driver::Waiter waiter() {
    return {[this] {
              poll();
              clock_.advance_to(now_ns() + 1'000);
            },
            [this] { return now_ns(); }};
  }
  void poll() {
    while (device_.engine().poll_actor(0)) {
    }
  }
  void reap() {
    for (std::uint32_t q = 0; q < kQueues; ++q) {
      queues_[q]->reap(UINT32_MAX, [&](const nvme::Cqe& cqe) {
        answers[{q, cqe.cid}] = {now_ns(), static_cast<std::uint16_t>(cqe.status_phase >> 1)};
      });
      queues_[q]->ring_cq();
    }
  }

  Clock clock_;
  api::Device device_;
  driver::NvmeDriver driver_;
  std::unique_ptr<driver::DmaMemory> memory_;
  driver::QueuePair* queues_[kQueues] = {};
};

// Moves an address from the rig's memory to the twin's; what is in neither stays.
std::uint64_t moved(std::uint64_t iova, const HostTwin& twin) {
  return iova >= EngineRig::kHostIova ? twin.iova(iova - EngineRig::kHostIova) : iova;
}

// Makes the commands of a stream: never two in flight on the same blocks if one writes, for their order is open.
class Stream {
 public:
  Stream(EngineRig& rig, std::uint64_t seed) : rig_(rig), rng_(seed) {
    for (std::uint32_t q = 0; q < kQueues; ++q) queues_[q] = &rig.add_queue(q == 1 ? 33 : 64, 64);
  }

  void run() {
    rig_.start();
    for (std::uint32_t step = 0; step < 6; ++step) {
      const auto q = static_cast<std::uint32_t>(rng_.below(kQueues));
      const std::uint64_t count = rng_.below(4) == 0 ? 1 + rng_.below(31) : 1 + rng_.below(6);
      for (std::uint64_t i = 0; i < count && in_flight_[q].size() < kSlots - 1; ++i) queues_[q]->submit(make(q));
      queues_[q]->ring();
      rig_.pass(rng_.below(3) == 0 ? 0 : 500 + rng_.below(4'000));
      reap();
    }
    for (int i = 0; i < 2'000 && in_flight() != 0; ++i) {
      rig_.pass(1'000);
      reap();
    }
    rig_.end();
    for (const auto& held : in_flight_) EXPECT_TRUE(held.empty()) << "commands without an answer";
  }
  const Preparations& preparations() const { return preparations_; }

 private:
  struct Held {
    std::uint32_t nsid = 0;
    std::uint64_t first = 0, last = 0;
    bool writes = false;
  };

  void reap() {
    for (std::uint32_t q = 0; q < kQueues; ++q)
      for (const nvme::Cqe& cqe : queues_[q]->reap()) EXPECT_EQ(in_flight_[q].erase(cqe.cid), 1u);
  }
  std::size_t in_flight() const {
    std::size_t count = 0;
    for (const auto& held : in_flight_) count += held.size();
    return count;
  }
  bool clashes(const Held& wish) const {
    for (const auto& queue : in_flight_)
      for (const auto& [cid, held] : queue)
        if (held.nsid == wish.nsid && held.first <= wish.last && wish.first <= held.last &&
            (held.writes || wish.writes))
          return true;
    return false;
  }

  nvme::Sqe make(std::uint32_t q) {
    std::uint32_t slot = next_cid_[q] % kSlots;
    while (slot_taken(q, slot)) slot = ++next_cid_[q] % kSlots;
    const std::uint16_t cid = next_cid_[q]++;
    nvme::Sqe sqe = draw(q, cid, slot);
    const bool writes = sqe.opcode != static_cast<std::uint8_t>(NvmOpcode::read) &&
                        sqe.opcode != static_cast<std::uint8_t>(NvmOpcode::compare);
    Held wish{sqe.nsid, nvme::starting_lba(sqe), nvme::starting_lba(sqe) + nvme::block_count(sqe), writes};
    if (sqe.opcode == static_cast<std::uint8_t>(NvmOpcode::dataset_management)) wish = {1, 0, UINT64_MAX, true};
    if (clashes(wish)) {
      sqe = command(NvmOpcode::flush, cid, 1);
      wish = {};
    }
    in_flight_[q][cid] = wish;
    return sqe;
  }
  bool slot_taken(std::uint32_t q, std::uint32_t slot) const {
    for (const auto& [cid, held] : in_flight_[q])
      if (cid % kSlots == slot) return true;
    return false;
  }

  nvme::Sqe draw(std::uint32_t q, std::uint16_t cid, std::uint32_t slot) {
    const std::uint64_t base = (q * kSlots + slot) * kSlotBytes;
    const auto nsid = static_cast<std::uint32_t>(1 + rng_.below(2));
    const std::uint64_t lba_bytes = nsid == 1 ? 512 : 4096;
    const auto blocks = static_cast<std::uint32_t>(1 + rng_.below(8192 / lba_bytes));
    const std::uint64_t lba = rng_.below(rig_.blocks(nsid) - blocks + 1);
    const std::uint64_t offset = nsid == 1 ? rng_.below(1024) * 4 : 0;
    // Buffer pages in another order than they lie, named by a list where there are three.
    const std::uint64_t first = base + 4096 + offset;
    const std::uint64_t pages = (offset + blocks * lba_bytes + 4095) / 4096;
    const std::uint64_t list = base + rng_.below(200) * 8;
    std::uint64_t prp2 = 0;
    if (pages == 2) prp2 = rig_.iova(base + 3 * 4096);
    if (pages == 3) {
      prp2 = rig_.iova(list);
      const std::uint64_t entries[] = {rig_.iova(base + 3 * 4096), rig_.iova(base + 2 * 4096)};
      prepare({q, cid}, list, entries, sizeof(entries), true);
    }
    const std::uint64_t draw = rng_.below(100);
    const auto make = [&](NvmOpcode opcode) { return command(opcode, cid, nsid, lba, blocks, rig_.iova(first), prp2); };
    if (draw < 50) return make(NvmOpcode::read);
    if (draw < 72) {
      std::vector<std::uint64_t> data(3 * 4096 / 8, rng_.next());
      prepare({q, cid}, base + 4096, data.data(), 3 * 4096, false);
      return make(NvmOpcode::write);
    }
    if (draw < 77) return command(NvmOpcode::flush, cid, rng_.below(2) == 0 ? 0xFFFFFFFFu : nsid);
    if (draw < 82) return make(NvmOpcode::compare);
    if (draw < 87) {
      nvme::Sqe sqe = make(NvmOpcode::write_zeroes);
      if (rng_.below(3) == 0) sqe.cdw12 |= nvme::kIoDeallocate;
      return sqe;
    }
    if (draw < 89) {
      nvme::Sqe sqe = command(NvmOpcode::dataset_management, cid, 1, 0, 1, rig_.iova(first & ~std::uint64_t{15}));
      const nvme::DatasetRange range{0, static_cast<std::uint32_t>(rng_.below(9)), rng_.below(rig_.blocks(1))};
      prepare({q, cid}, first & ~std::uint64_t{15}, &range, sizeof(range), false);
      sqe.cdw10 = 0;
      sqe.cdw11 = rng_.below(4) == 0 ? 0 : nvme::kDatasetDeallocate;
      return sqe;
    }
    return wrong(make(rng_.below(2) == 0 ? NvmOpcode::read : NvmOpcode::compare));
  }

  void prepare(Name name, std::uint64_t offset, const void* from, std::size_t bytes, bool is_list) {
    std::memcpy(rig_.host() + offset, from, bytes);
    const auto* const first = static_cast<const std::byte*>(from);
    preparations_.insert({name, {offset, {first, first + bytes}, is_list}});
  }

  nvme::Sqe wrong(nvme::Sqe sqe) {
    switch (rng_.below(7)) {
      case 0:
        sqe.prp1 = 0x1000;
        break;
      case 1:
        sqe.prp1 += 2;
        break;
      case 2:
        nvme::set_lba_range(sqe, rig_.blocks(sqe.nsid), 1);
        break;
      case 3:
        sqe.nsid = rng_.below(2) == 0 ? 0 : 9;
        break;
      case 4:
        sqe.opcode = 0x7F;
        break;
      case 5:
        sqe.cdw12 |= 1u << nvme::kIoProtectionShift;
        break;
      default:
        nvme::set_lba_range(sqe, 0, 65536);
    }
    return sqe;
  }

  EngineRig& rig_;
  Rng rng_;
  Preparations preparations_;
  RigQueue* queues_[kQueues] = {};
  std::map<std::uint16_t, Held> in_flight_[kQueues];
  std::uint16_t next_cid_[kQueues] = {};
};

void copy_state(EngineRig& rig, HostTwin& twin) {
  std::memcpy(twin.host(), rig.host(), kHostBytes);
  for (const std::uint32_t nsid : {1u, 2u}) std::memcpy(twin.media(nsid), rig.media(nsid), kNamespaceBytes);
}

void repeat(const Preparation& preparation, HostTwin& twin) {
  std::memcpy(twin.host() + preparation.offset, preparation.bytes.data(), preparation.bytes.size());
  auto* const entries = reinterpret_cast<std::uint64_t*>(twin.host() + preparation.offset);
  for (std::size_t i = 0; preparation.is_list && i < preparation.bytes.size() / 8; ++i)
    entries[i] = moved(entries[i], twin);
}

// Lets the recorded batches arrive at the twin; `start_ns` is when the rig's time began.
void replay(const std::vector<engine::TraceEntry>& trace, const Preparations& preparations, std::uint64_t start_ns,
            HostTwin& twin) {
  const std::uint64_t base_ns = twin.now_ns() + 1'000;
  for (std::size_t at = 0; at < trace.size();) {
    std::size_t end = at;
    while (end < trace.size() && trace[end].sqid == trace[at].sqid && trace[end].fetched_ns == trace[at].fetched_ns)
      ++end;
    std::vector<nvme::Sqe> batch;
    for (std::size_t i = at; i < end; ++i) batch.push_back(trace[i].sqe);
    // The record is in the model's order; command identifiers are in the queue's.
    std::sort(batch.begin(), batch.end(), [](const auto& a, const auto& b) { return a.cid < b.cid; });
    twin.advance_to(base_ns + trace[at].fetched_ns - start_ns);
    const std::uint32_t queue = trace[at].sqid - 1u;
    for (nvme::Sqe sqe : batch) {
      const auto [from, to] = preparations.equal_range({queue, sqe.cid});
      for (auto each = from; each != to; ++each) repeat(each->second, twin);
      sqe.prp1 = moved(sqe.prp1, twin);
      sqe.prp2 = moved(sqe.prp2, twin);
      twin.submit(queue, sqe);
    }
    twin.ring(queue);
    at = end;
  }
  twin.advance_to(twin.now_ns() + 50'000'000);
  for (const engine::TraceEntry& entry : trace) {
    const auto found = twin.answers.find({entry.sqid - 1u, entry.sqe.cid});
    ASSERT_NE(found, twin.answers.end());
    EXPECT_EQ(found->second.at_ns - base_ns, entry.target_ns - start_ns)
        << "opcode " << int{entry.sqe.opcode} << ", queue " << entry.sqid << ", command " << entry.sqe.cid;
    EXPECT_EQ(nvme::status_of(found->second.status), nvme::status_of(entry.status)) << int{entry.sqe.opcode};
    EXPECT_EQ(found->second.status & nvme::kStatusDoNotRetry, entry.status & nvme::kStatusDoNotRetry);
    EXPECT_GE(entry.posted_ns, entry.target_ns);
  }
}

// Of every slot's data pages; the lists hold addresses, which differ.
bool buffers_are_equal(EngineRig& rig, HostTwin& twin) {
  for (std::uint64_t slot = 0; slot < kHostBytes; slot += kSlotBytes)
    if (std::memcmp(rig.host() + slot + 4096, twin.host() + slot + 4096, kSlotBytes - 4096) != 0) return false;
  return true;
}

std::vector<TimingConfig> timings() {
  std::vector<TimingConfig> all;
  for (const std::uint32_t instances : {1u, 2u, 8u, 64u}) {
    TimingConfig timing = rig_timing();
    timing.instances = instances;
    timing.unit_bytes = instances == 2 ? 4096 : 512;
    // A rate that makes queues, and one whose service time is no whole number of nanoseconds.
    timing.read_iops = instances == 8 ? 3e6 : 7e6;
    timing.write_latency_ns = instances == 1 ? 3'000 : 25'000;
    timing.read_latency_ns = 25'000;
    all.push_back(timing);
  }
  // Limited by its byte rates, which differ by direction, and with writes that a buffer answers early.
  TimingConfig linked = rig_timing();
  linked.instances = 4;
  linked.write_iops = 1e5;
  linked.write_latency_ns = 3'000;
  linked.link_bytes_per_s = 900'000'000;
  linked.write_bytes_per_s = 300'000'000;
  all.push_back(linked);
  TimingConfig none = rig_timing();
  none.model = "none";
  all.push_back(none);
  return all;
}

std::uint64_t streams() {
  const char* const wish = std::getenv("FLASHMOB_GPU_SEEDS");
#if defined(FLASHMOB_ASAN)
  constexpr std::uint64_t kUsual = 100;
#else
  constexpr std::uint64_t kUsual = 1'000;
#endif
  return wish == nullptr ? kUsual : std::strtoull(wish, nullptr, 10);
}

TEST(GpuEngineEquality, TargetsStatusesAndDataAreTheHostEngines) {
  const std::vector<TimingConfig> all = timings();
  std::uint64_t commands = 0;
  for (std::size_t which = 0; which < all.size(); ++which) {
    HostTwin twin(all[which]);
    for (std::uint64_t seed = which; seed < streams(); seed += all.size()) {
      RigOptions options;
      options.timing = all[which];
      options.namespace_bytes = kNamespaceBytes;
      options.host_bytes = kHostBytes;
      options.fibres.seed = seed;
      options.fibres.schedule = seed % 4 == 3 ? simt::Schedule::random : simt::Schedule::timed;
      EngineRig rig(options);
      const std::uint64_t start_ns = rig.now_ns();
      copy_state(rig, twin);
      twin.reset_model();
      twin.answers.clear();
      Stream stream(rig, seed);
      stream.run();
      const auto trace = rig.engine().trace();
      commands += trace.size();
      replay(trace, stream.preparations(), start_ns, twin);
      EXPECT_TRUE(buffers_are_equal(rig, twin));
      for (const std::uint32_t nsid : {1u, 2u})
        EXPECT_EQ(std::memcmp(rig.media(nsid), twin.media(nsid), kNamespaceBytes), 0) << "namespace " << nsid;
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", model " << which;
    }
  }
  RecordProperty("commands", static_cast<int>(commands));
  EXPECT_GT(commands, streams() * 10);
}

}  // namespace
}  // namespace flashmob::gpu
