#include <map>
#include <stdexcept>

#include "engine/engine_rig.h"
#include "weak/protocols.h"

namespace flashmob::gpu::test {
namespace {

using nvme::NvmOpcode;

constexpr std::uint64_t kBlockWords = 64;
constexpr std::uint32_t kQueues = 2;
constexpr std::uint32_t kEntries = 8;

// A host with two queues: what it reads is what it has written, by the word.
class Host {
 public:
  Host(EngineRig& rig, std::uint64_t seed) : rig_(rig), rng_(seed) {
    for (std::uint32_t i = 0; i < kQueues; ++i) queues_[i] = &rig.add_queue(kEntries, kEntries);
  }

  std::string run() {
    std::string fault;
    for (std::uint32_t round = 0; round < 4 && fault.empty(); ++round) {
      for (std::uint32_t q = 0; q < kQueues; ++q) submit(q);
      fault = take_all();
    }
    return fault;
  }

 private:
  struct Sent {
    bool reads = false;
    std::uint64_t value = 0;
  };

  std::uint64_t* buffer(std::uint32_t queue, std::uint32_t slot) {
    return reinterpret_cast<std::uint64_t*>(rig_.host()) + (queue * kEntries + slot) * kBlockWords;
  }

  // Each slot of a queue has a block and a buffer of its own, so that no two commands meet.
  void submit(std::uint32_t q) {
    const std::uint32_t count = 1 + static_cast<std::uint32_t>(rng_.below(kEntries - 1));
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      Sent& sent = sent_[q][slot];
      sent.reads = sent.value != 0 && rng_.below(2) == 0;
      if (!sent.reads) sent.value = rng_.next() | 1;
      for (std::uint64_t i = 0; i < kBlockWords; ++i) buffer(q, slot)[i] = sent.reads ? 0 : sent.value + i;
      const auto offset = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(buffer(q, slot)) - rig_.host());
      queues_[q]->submit(command(sent.reads ? NvmOpcode::read : NvmOpcode::write, static_cast<std::uint16_t>(slot), 1,
                                 q * kEntries + slot, 1, rig_.iova(offset)));
      if (rng_.below(3) == 0) queues_[q]->ring();
    }
    queues_[q]->ring();
  }

  std::string take_all() {
    for (std::uint32_t step = 0; step < 20'000; ++step) {
      std::uint32_t left = 0;
      for (std::uint32_t q = 0; q < kQueues; ++q) {
        for (const nvme::Cqe& entry : queues_[q]->reap()) {
          const Sent& sent = sent_[q][entry.cid % kEntries];
          if (status_of(entry) != nvme::Status::success) return "wrong status";
          for (std::uint64_t i = 0; sent.reads && i < kBlockWords; ++i) {
            if (buffer(q, entry.cid % kEntries)[i] != sent.value + i) return "wrong data";
          }
        }
        left += queues_[q]->outstanding();
      }
      if (left == 0) return "";
      rig_.pass(1'000);
    }
    return "commands never came to their end";
  }

  EngineRig& rig_;
  Rng rng_;
  RigQueue* queues_[kQueues] = {};
  std::map<std::uint32_t, Sent> sent_[kQueues];
};

}  // namespace

std::string run_engine_seed(std::uint64_t seed) {
  RigOptions options;
  options.timing = rig_timing();
  options.engine.units = 1 + static_cast<std::uint32_t>(seed % 2);
  options.engine.movers = 1 + static_cast<std::uint32_t>(seed / 2 % 2);
  options.engine.slots = 32;  // fewer than commands: slots are used again
  options.fibres.seed = seed;
  options.fibres.schedule = simt::Schedule::random;
  options.fibres.patience_ns = 5'000'000;
  options.fibres.weak_memory = weak_memory;
  options.namespace_bytes = options.host_bytes = 64 << 10;
  try {
    EngineRig rig(options);
    Host host(rig, seed);
    rig.start();
    std::string fault = host.run();
    if (fault.empty()) rig.end();
    return fault;
  } catch (const std::runtime_error& e) {  // StuckError, RaceError
    return e.what();
  }
}

}  // namespace flashmob::gpu::test
