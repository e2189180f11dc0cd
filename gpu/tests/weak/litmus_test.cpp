// Litmus programs on weak memory: what the models forbid is never seen, and what they allow is seen at some seed, so
// that the mode is as weak as it says. Those of cuda/litmus_kernels.h, too, which also run on threads and on GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "cuda/litmus_kernels.h"
#include "flashmob/gpu/simt/fibre.h"
#include "flashmob/gpu/simt/host_lane.h"
#include "weak/protocols.h"

namespace flashmob::gpu::test {
namespace {

using simt::Order;
using Word = simt::Word<std::uint32_t>;

constexpr std::uint64_t kNever = 0;

simt::FibreOptions options(std::uint64_t seed) {
  simt::FibreOptions o;
  o.seed = seed;
  o.patience_ns = 1'000'000;
  o.weak_memory.on = true;
  return o;
}

// The first seed at which `run` says true or a race is found; kNever if there is none.
std::uint64_t first_seed(const std::function<bool(std::uint64_t)>& run) {
  // No fewer: what is allowed is to be seen.
  const std::uint64_t last = std::max<std::uint64_t>(1'000, from_environment("FLASHMOB_WEAK_SEEDS", 0));
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    try {
      if (run(seed)) return seed;
    } catch (const simt::RaceError&) {
      return seed;
    }
  }
  return kNever;
}

struct Words {
  alignas(64) Word x;
  alignas(64) Word y;
  std::uint32_t plain = 0;
  std::uint32_t seen[4] = {};
};

// One lane each of two blocks, which run `Program`'s sides.
template <class Program>
struct Sides {
  Program program;
  template <class Lane>
  void operator()(Lane& t, Words* w) const {
    program(t, *w, t.block());
  }
};
template <class Program>
Words after(std::uint64_t seed, const Program& program) {
  Words words;
  simt::EmptyWorld world;
  simt::FibreDevice device(world, options(seed));
  device.run({.blocks = 2, .block_threads = 1}, Sides<Program>{program}, &words);
  return words;
}

template <class Lane>
void await(Lane& t, Word& word, Order order) {
  while (word.load(t, order) == 0) t.pause(10);
}

std::uint64_t message_passing(Order release, Order acquire) {
  return first_seed([=](std::uint64_t seed) {
    return after(seed, [=](auto& t, Words& w, std::uint32_t side) {
             if (side == 0) {
               w.x.store(t, 1, Order::relaxed);
               w.y.store(t, 1, release);
             } else {
               await(t, w.y, acquire);
               w.seen[1] = w.x.load(t, Order::relaxed);
             }
           }).seen[1] == 0;
  });
}
TEST(WeakMemory, PassesMessagesOnlyByReleaseAndAcquire) {
  EXPECT_EQ(message_passing(Order::release, Order::acquire), kNever);
  EXPECT_NE(message_passing(Order::relaxed, Order::acquire), kNever);
  EXPECT_NE(message_passing(Order::release, Order::relaxed), kNever);
  const std::uint64_t seed = message_passing(Order::relaxed, Order::relaxed);
  EXPECT_NE(seed, kNever);
  RecordProperty("relaxed_fails_at_seed", std::to_string(seed));
}

std::uint64_t plain_message(Order release, Order acquire) {
  return first_seed([=](std::uint64_t seed) {
    return after(seed, [=](auto& t, Words& w, std::uint32_t side) {
             if (side == 0) {
               w.plain = 7;
               w.y.store(t, 1, release);
             } else {
               await(t, w.y, acquire);
               w.seen[1] = w.plain;
             }
           }).seen[1] != 7;
  });
}
TEST(WeakMemory, FindsRacesOfPlainData) {
  EXPECT_EQ(plain_message(Order::release, Order::acquire), kNever);
  EXPECT_EQ(plain_message(Order::relaxed, Order::acquire), 1u);
  EXPECT_EQ(plain_message(Order::release, Order::relaxed), 1u);
}
TEST(WeakMemory, NamesBothSidesOfARaceAndReplaysIt) {
  std::string reports[2];
  for (std::string& report : reports) {
    try {
      after(5, [](auto& t, Words& w, std::uint32_t side) {
        if (side == 0) w.plain = 7;
        w.y.fetch_add(t, 1, Order::relaxed);
        if (side == 1) w.seen[1] = w.plain;
      });
      FAIL() << "no race was found";
    } catch (const simt::RaceError& error) {
      report = error.what();
    }
  }
  EXPECT_EQ(reports[0], reports[1]);
  EXPECT_NE(reports[0].find("seed 5"), std::string::npos) << reports[0];
  EXPECT_NE(reports[0].find("litmus_test.cpp:"), std::string::npos) << reports[0];
}

// Both may miss the other's store, released and acquired or not; not if both are updates.
std::uint64_t store_buffering(bool updates) {
  return first_seed([=](std::uint64_t seed) {
    const Words words = after(seed, [=](auto& t, Words& w, std::uint32_t side) {
      Word& mine = side == 0 ? w.x : w.y;
      Word& other = side == 0 ? w.y : w.x;
      if (updates) {
        mine.exchange(t, 1);
        w.seen[side] = other.fetch_add(t, 0);
      } else {
        mine.store(t, 1, Order::release);
        w.seen[side] = other.load(t, Order::acquire);
      }
    });
    return words.seen[0] == 0 && words.seen[1] == 0;
  });
}
TEST(WeakMemory, BuffersStoresButNotUpdates) {
  EXPECT_NE(store_buffering(false), kNever);
  EXPECT_EQ(store_buffering(true), kNever);
}

// Each word ends with the first store of the one who stored it first: its second store was out before.
TEST(WeakMemory, StoresToDifferentWordsOvertakeEachOther) {
  const std::uint64_t seed = first_seed([](std::uint64_t s) {
    const Words words = after(s, [](auto& t, Words& w, std::uint32_t side) {
      (side == 0 ? w.x : w.y).store(t, 1, Order::relaxed);
      (side == 0 ? w.y : w.x).store(t, 2, Order::relaxed);
    });
    return words.x.value == 1 && words.y.value == 1;
  });
  EXPECT_NE(seed, kNever);
}

TEST(WeakMemory, AWordNeverGoesBackAndUpdatesLoseNothing) {
  const std::uint64_t seed = first_seed([](std::uint64_t s) {
    const Words words = after(s, [](auto& t, Words& w, std::uint32_t side) {
      std::uint32_t last = 0;
      for (std::uint32_t i = 1; i <= 12; ++i) {
        w.y.fetch_add(t, 1, Order::relaxed);
        if (side == 0) {
          w.x.store(t, i, Order::relaxed);
          if (w.x.load(t, Order::relaxed) != i) w.seen[2] = 1;  // its own
        } else {
          const std::uint32_t now = w.x.load(t, Order::relaxed);
          if (now < last) w.seen[3] = 1;
          last = now;
        }
      }
    });
    return words.seen[2] != 0 || words.seen[3] != 0 || words.y.value != 24 || words.x.value != 12;
  });
  EXPECT_EQ(seed, kNever);
}

// What was released is there for all who acquire a value that updates have made of the released one.
TEST(WeakMemory, UpdatesGoOnWithARelease) {
  const auto run = [](bool update) {
    return first_seed([=](std::uint64_t seed) {
      Words words;
      simt::EmptyWorld world;
      simt::FibreDevice device(world, options(seed));
      const auto program = [=](auto& t, Words& w, std::uint32_t side) {
        if (side == 0) {
          w.plain = 7;
          w.y.store(t, 1, Order::release);
        } else if (side == 1) {
          await(t, w.y, Order::relaxed);
          if (update)
            w.y.fetch_add(t, 1, Order::relaxed);
          else
            w.y.store(t, 2, Order::relaxed);
        } else {
          while (w.y.load(t, Order::acquire) != 2) t.pause(10);
          w.seen[2] = w.plain;
        }
      };
      device.run({.blocks = 3, .block_threads = 1}, Sides<decltype(program)>{program}, &words);
      return words.seen[2] != 7;
    });
  };
  EXPECT_EQ(run(true), kNever);
  EXPECT_NE(run(false), kNever);
}

struct InAWarp {
  bool syncs;
  template <class Lane>
  void operator()(Lane& t, std::uint32_t* data, std::uint32_t* wrong) const {
    if (t.lane() == 0) *data = 7;
    if (syncs)
      t.sync(t.lanes());
    else
      t.shuffle(t.lanes(), 1, 0);
    if (*data != 7) wrong[t.lane()] = 1;
  }
};
TEST(WeakMemory, AShuffleOrdersNothingAndASyncDoes) {
  const auto run = [](bool syncs) {
    return first_seed([=](std::uint64_t seed) {
      std::uint32_t data = 0;
      std::uint32_t wrong[32] = {};
      simt::EmptyWorld world;
      simt::FibreDevice device(world, options(seed));
      device.run({.blocks = 1, .block_threads = 32}, InAWarp{syncs}, &data, &wrong[0]);
      return false;
    });
  };
  EXPECT_EQ(run(true), kNever);
  EXPECT_EQ(run(false), 1u);
}

// A device beside the lanes: takes an entry when it sees the doorbell, and answers with data and a completion.
class Echo final : public simt::World {
 public:
  std::uint64_t now_ns() override { return now_ns_; }
  bool pass(std::uint64_t to_ns) override {
    now_ns_ = to_ns;
    if (doorbell == seen_) return false;
    seen_ = doorbell;
    data = entry + 1;
    completion = seen_;
    return true;
  }
  std::uint64_t next_event_ns() override { return doorbell != seen_ ? now_ns_ : UINT64_MAX; }

  std::uint32_t entry = 0;
  alignas(64) std::uint32_t doorbell = 0;
  alignas(64) std::uint32_t data = 0;
  alignas(64) std::uint32_t completion = 0;

 private:
  std::uint32_t seen_ = 0;
  std::uint64_t now_ns_ = 1;
};
struct Ask {
  Order rings;
  Order looks;
  template <class Lane>
  void operator()(Lane& t, Echo* ssd, std::uint32_t* wrong) const {
    using Ref = simt::WordRef<std::uint32_t, simt::Scope::system>;
    for (std::uint32_t round = 1; round <= 4; ++round) {
      ssd->entry = round * 10;
      Ref(ssd->doorbell).store(t, round, rings);
      while (Ref(ssd->completion).load(t, looks) != round) t.pause(10);
      if (ssd->data != round * 10 + 1) *wrong = 1;
    }
  }
};
TEST(WeakMemory, DoorbellAndDataCompletionAndData) {
  const auto run = [](Order rings, Order looks) {
    return first_seed([=](std::uint64_t seed) {
      Echo ssd;
      std::uint32_t wrong = 0;
      simt::FibreDevice device(ssd, options(seed));
      device.run({.blocks = 1, .block_threads = 1}, Ask{rings, looks}, &ssd, &wrong);
      return wrong != 0;
    });
  };
  EXPECT_EQ(run(Order::release, Order::acquire), kNever);
  EXPECT_EQ(run(Order::relaxed, Order::acquire), 1u);
  EXPECT_EQ(run(Order::release, Order::relaxed), 1u);
}

// The host as a peer: one side of cuda/litmus_kernels.h's Correspond on fibres, the other a host's thread.
class Peer final : public simt::World {
 public:
  explicit Peer(std::uint32_t rounds, Order acquire) : rounds_(rounds), acquire_(acquire) {}
  std::uint64_t now_ns() override { return now_ns_; }
  bool pass(std::uint64_t to_ns) override {
    now_ns_ = to_ns;
    if (round_ > rounds_ || pair.flag.load(lane_, acquire_) < round_) return false;
    for (std::uint32_t i = 0; i < cuda::kLitmusWords; ++i) {
      wrong += pair.data[i] != round_ + i;
      pair.answer_data[i] = round_ * 3 + i;
    }
    pair.answer.store(lane_, round_++, Order::release);
    return true;
  }
  std::uint64_t next_event_ns() override { return now_ns_ + 100; }

  cuda::LitmusPair<simt::Scope::system> pair{};
  std::uint32_t wrong = 0;

 private:
  const std::uint32_t rounds_;
  const Order acquire_;
  std::uint32_t round_ = 1;
  std::uint64_t now_ns_ = 1;
  simt::HostLane lane_{[this] { return now_ns_; }, [](std::uint32_t) {}};
};
TEST(WeakMemory, HostAndDeviceAsPeers) {
  const auto run = [](Order acquire) {
    return first_seed([=](std::uint64_t seed) {
      Peer peer(3, acquire);
      std::uint32_t wrong = 0;
      simt::FibreDevice device(peer, options(seed));
      device.run({.blocks = 1, .block_threads = 1}, cuda::Correspond{}, &peer.pair, 3u, &wrong);
      return wrong != 0 || peer.wrong != 0;
    });
  };
  EXPECT_EQ(run(Order::acquire), kNever);
  EXPECT_EQ(run(Order::relaxed), 1u);
}

TEST(WeakMemory, TheGpusLitmusProgramsHold) {
  const std::uint64_t seed = first_seed([](std::uint64_t s) {
    simt::EmptyWorld world;
    simt::FibreDevice device(world, options(s));
    const auto pairs = std::make_unique<cuda::LitmusPair<simt::Scope::device>[]>(4);
    Word wrong;
    device.run({.blocks = 4, .block_threads = 1}, cuda::PassMessages{}, pairs.get(), 3u, &wrong);
    device.run({.blocks = 4, .block_threads = 1}, cuda::GiveBack{}, pairs.get() + 2, 3u, &wrong);
    return wrong.value != 0;
  });
  EXPECT_EQ(seed, kNever);
}

TEST(WeakMemory, ASeedIsASchedule) {
  const auto run = [](std::uint64_t seed) {
    return after(seed, [](auto& t, Words& w, std::uint32_t side) {
      for (std::uint32_t i = 1; i <= 20; ++i) {
        (side == 0 ? w.x : w.y).store(t, i, Order::relaxed);
        w.seen[side] = w.seen[side] * 31 + (side == 0 ? w.y : w.x).load(t, Order::relaxed);
      }
    });
  };
  EXPECT_EQ(run(3).seen[0], run(3).seen[0]);
  EXPECT_NE(run(3).seen[0], run(4).seen[0]);
}

}  // namespace
}  // namespace flashmob::gpu::test
