// Lanes that read and write blocks through a cache in every way it offers, and a plain model of what they must see.
//
// Blocks below `shared` have one word per thread: each thread counts its own word up, so it knows exactly what it must
// read, whatever the others do. Each thread also owns one block that it alone overwrites as a whole, all words equal.
// A block that belongs to another key shows by its first word.
#pragma once

#include <vector>

#include "base/rng.h"
#include "cache/cache_fixture.h"

namespace flashmob::gpu::test {

struct TrafficOptions {
  std::uint32_t rounds = 12;
  std::uint32_t ssds = 1;
  std::uint32_t namespaces = 1;
  std::uint64_t shared = 6;   // blocks of every namespace that all threads use
  bool whole_warps = true;    // some rounds use the warp's form
  bool buffers = true;        // some rounds copy to and from buffers
  bool racing_copies = true;  // also of blocks that others may be changing
  std::uint64_t timeout_ns = 0;
};

// Of one thread. `own` counts, per shared block of every namespace, what this thread has written there.
struct ThreadModel {
  Rng rng;
  std::vector<std::uint64_t> own;
  std::uint64_t whole = 0;  // what its own block holds
  std::byte* buffer = nullptr;
  std::uint64_t wrong = 0;
  std::uint64_t wrong_at = 0;  // source line of the first
  std::uint64_t errors = 0;
  std::uint64_t accesses = 0;

  void check(bool good, std::uint64_t at) {
    if (good) return;
    if (wrong++ == 0) wrong_at = at;
  }
};

struct TrafficModel {
  TrafficModel(const TrafficOptions& o, std::uint32_t threads_, std::uint32_t line_bytes, std::uint64_t seed_)
      : options(o), seed(seed_), buffers(std::size_t{threads_} * line_bytes) {
    Rng rng(seed);
    const std::uint64_t blocks = std::uint64_t{o.ssds} * o.namespaces * o.shared;
    for (std::uint32_t i = 0; i < threads_; ++i) {
      auto* buffer = static_cast<std::byte*>(buffers.get()) + std::size_t{i} * line_bytes;
      threads.push_back({rng.split(i), std::vector<std::uint64_t>(blocks), 0, buffer});
    }
  }
  // Thread i's own block.
  BlockKey whole_key(std::uint32_t i) const {
    return {i % options.ssds, i / options.ssds % options.namespaces, options.shared + i};
  }
  std::uint64_t index(const BlockKey& key) const {
    return (std::uint64_t{key.ssd} * options.namespaces + key.ns) * options.shared + key.block;
  }
  // What went wrong, or "".
  std::string fault() const {
    for (std::size_t i = 0; i < threads.size(); ++i) {
      if (threads[i].wrong != 0)
        return "thread " + std::to_string(i) + " saw wrong data at traffic.h:" + std::to_string(threads[i].wrong_at);
    }
    return "";
  }
  // Whether a block's words are what they must be when everybody has finished.
  bool shared_is_right(const BlockKey& key, const std::uint64_t* words) const {
    bool good = words[0] == block_mark(key);
    for (std::size_t i = 0; i < threads.size(); ++i) good &= words[1 + i] == threads[i].own[index(key)];
    return good;
  }
  bool whole_is_right(std::uint32_t i, const std::uint64_t* words) const { return words[1] == threads[i].whole; }
  // Calls visit(key, thread) for every block; `thread` is its owner, or kNobody.
  static constexpr std::uint32_t kNobody = ~0u;
  template <class Visit>
  void each_block(Visit visit) const {
    for (std::uint32_t s = 0; s < options.ssds; ++s) {
      for (std::uint32_t n = 0; n < options.namespaces; ++n) {
        for (std::uint64_t b = 0; b < options.shared; ++b) visit(BlockKey{s, n, b}, kNobody);
      }
    }
    for (std::uint32_t i = 0; i < threads.size(); ++i) visit(whole_key(i), i);
  }
  // After a flush: the last difference between the SSDs and the model, or "".
  std::string compare(FakeDevices& devices, std::uint32_t line_bytes) const {
    std::string fault;
    each_block([&](const BlockKey& key, std::uint32_t owner) {
      const auto* words =
          reinterpret_cast<const std::uint64_t*>(devices.media(key.ssd, key.ns).data() + key.block * line_bytes);
      if (owner == kNobody ? shared_is_right(key, words) : whole_is_right(owner, words)) return;
      fault = "wrong on SSD " + std::to_string(key.ssd) + " ns " + std::to_string(key.ns) + " block " +
              std::to_string(key.block);
    });
    return fault;
  }

  TrafficOptions options;
  std::uint64_t seed;
  Bytes buffers;
  std::vector<ThreadModel> threads;
};

template <class Cache>
struct Traffic {
  Cache cache;
  TrafficModel* model;

  template <class Lane>
  void operator()(Lane& t) const {
    ThreadModel& me = model->threads[t.thread()];
    // What all lanes of a warp do together is drawn from the warp's own sequence.
    Rng together(model->seed * 1000 + t.warp());
    for (std::uint32_t round = 0; round < model->options.rounds; ++round) {
      const bool warp = together.below(4) == 0 && model->options.whole_warps;
      if (warp)
        by_warp(t, me, together.below(8) == 0);
      else
        alone(t, me);
    }
  }

 private:
  BlockKey draw(ThreadModel& me) const {
    const auto& o = model->options;
    return {static_cast<std::uint32_t>(me.rng.below(o.ssds)), static_cast<std::uint32_t>(me.rng.below(o.namespaces)),
            me.rng.below(o.shared)};
  }
  WaitLimit limit() const { return {model->options.timeout_ns}; }

  template <class Lane>
  void by_warp(Lane& t, ThreadModel& me, bool prefetch) const {
    const BlockKey key = draw(me);
    if (prefetch) cache.prefetch(t, t.lanes(), key);
    const bool write = me.rng.below(2) == 0;
    const Pin pin = cache.acquire(t, t.lanes(), key, write ? Access::write : Access::read, limit());
    use_shared(t, me, key, pin, write);
    if (prefetch)
      cache.release(t, pin);
    else
      cache.release(t, t.lanes(), pin);
  }

  template <class Lane>
  void alone(Lane& t, ThreadModel& me) const {
    const std::uint64_t what = me.rng.below(model->options.buffers ? 10 : 8);
    const BlockKey key = draw(me);
    switch (what) {
      case 0:
        cache.prefetch(t, key);
        break;
      case 1:
        overwrite(t, me);
        break;
      case 2:
        read_whole(t, me);
        break;
      case 3:
        if (me.rng.below(4) == 0) cache.write_back(t, t.thread(), t.threads(), limit());
        break;
      case 8:
        read_buffer(t, me, model->options.racing_copies ? key : model->whole_key(t.thread()));
        break;
      case 9:
        write_buffer(t, me);
        break;
      default: {
        const bool write = what % 2 == 0;
        const Pin pin = cache.acquire(t, key, write ? Access::write : Access::read, limit());
        use_shared(t, me, key, pin, write);
        cache.release(t, pin);
      }
    }
  }

  template <class Lane>
  void use_shared(Lane& t, ThreadModel& me, const BlockKey& key, const Pin& pin, bool write) const {
    ++me.accesses;
    if (!pin.ok()) {
      ++me.errors;
      me.check(!pin.status.ok(), __LINE__);
      return;
    }
    auto* words = reinterpret_cast<std::uint64_t*>(pin.data);
    std::uint64_t& own = me.own[model->index(key)];
    me.check(words[0] == block_mark(key), __LINE__);
    me.check(words[1 + t.thread()] == own, __LINE__);
    if (write) words[1 + t.thread()] = ++own;
    t.pause(1);
    me.check(words[0] == block_mark(key), __LINE__);
    me.check(words[1 + t.thread()] == own, __LINE__);
  }

  template <class Lane>
  void overwrite(Lane& t, ThreadModel& me) const {
    const Pin pin = cache.acquire(t, model->whole_key(t.thread()), Access::overwrite, limit());
    if (!pin.ok()) {
      ++me.errors;
      return;
    }
    auto* words = reinterpret_cast<std::uint64_t*>(pin.data);
    ++me.whole;
    simt::WordRef<std::uint64_t>(words[0]).store(t, me.whole);
    for (std::uint32_t i = 1; i < cache.line_bytes() / 8; ++i) words[i] = me.whole;
    cache.release(t, pin);
  }

  // Of another thread's block only the first word, which that thread may be changing.
  template <class Lane>
  void read_whole(Lane& t, ThreadModel& me) const {
    auto i = static_cast<std::uint32_t>(me.rng.below(2) == 0 ? t.thread() : me.rng.below(t.threads()));
    if (!model->options.racing_copies) i = t.thread();
    const BlockKey key = model->whole_key(i);
    const Pin pin = cache.acquire(t, key, Access::read, limit());
    if (!pin.ok()) return;
    auto* words = reinterpret_cast<std::uint64_t*>(pin.data);
    const std::uint64_t first = simt::WordRef<std::uint64_t>(words[0]).load(t);
    me.check(first == block_mark(key) || first <= model->options.rounds, __LINE__);
    if (i == t.thread()) {
      me.check(first == (me.whole == 0 ? block_mark(key) : me.whole), __LINE__);
      for (std::uint32_t w = 1; w < cache.line_bytes() / 8; ++w) me.check(words[w] == me.whole, __LINE__);
    }
    cache.release(t, pin);
  }

  // A thread's own word, or block, through a buffer of its own.
  template <class Lane>
  void read_buffer(Lane& t, ThreadModel& me, const BlockKey& key) const {
    const auto transfer = cache.async_read(t, key, me.buffer);
    const IoStatus status = cache.wait_for(t, transfer, limit());
    if (!status.ok()) return;
    const auto* words = reinterpret_cast<const std::uint64_t*>(me.buffer);
    if (key.block >= model->options.shared) {
      me.check(words[1] == me.whole, __LINE__);
      return;
    }
    me.check(words[0] == block_mark(key), __LINE__);
    me.check(words[1 + t.thread()] == me.own[model->index(key)], __LINE__);
  }
  template <class Lane>
  void write_buffer(Lane& t, ThreadModel& me) const {
    auto* words = reinterpret_cast<std::uint64_t*>(me.buffer);
    for (std::uint32_t i = 0; i < cache.line_bytes() / 8; ++i) words[i] = me.whole + 1;
    const auto transfer = cache.async_write(t, model->whole_key(t.thread()), me.buffer, limit());
    if (transfer.kind != decltype(transfer.kind)::writes) return;
    ++me.whole;
    while (me.rng.below(2) == 0 && !cache.test(t, transfer)) t.pause(100);
    cache.wait_for(t, transfer, limit());
  }
};

}  // namespace flashmob::gpu::test
