// Moves bytes between media and host memory. A worker hands over copies and asks later which are done, so that a CPU,
// a DMA engine or a GPU serve alike.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace flashmob::engine {

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::uint32_t bytes;
  std::uint32_t token;  // handed back by poll()
};

// What became of the copies that a device beside the cores was asked for.
struct CopyCounters {
  std::uint64_t offloaded = 0;    // copies that the device made
  std::uint64_t fallbacks = 0;    // copies that the CPU made or finished in its place; of these:
  std::uint64_t page_faults = 0;  //   the device met a page that was not there
  std::uint64_t errors = 0;       //   it reported an error
  std::uint64_t refusals = 0;     //   it took no more work
  std::uint64_t lost = 0;         //   it had them when it was given up; what comes after that is only a fallback

  void add(const CopyCounters& other);
};

struct CopyReport {
  std::string engine;  // names as describe() gives them
  CopyCounters counters;
};

// Copies that wait, oldest first. Whoever keeps them notes how many have been asked for: their sources are, or will
// soon be, in the cache of the core that copies.
struct CopyRun {
  std::span<const Copy> copies;
  std::size_t asked = 0;
};

// One per worker, used by its thread only. Nothing allocates after construction.
class CopyEngine {
 public:
  // Copies that may be submitted before poll() has handed back their tokens.
  static constexpr std::size_t kMaxUnpolled = 512;

  virtual ~CopyEngine() = default;
  // Makes or starts the first `count` of a run; the rest will follow soon, and may be asked for meanwhile. True if they
  // are made; false if poll() will hand back their tokens.
  // `streaming` says that the destinations will not be read again from this core's cache (client buffers that
  // outgrow it), so that stores which bypass the cache win.
  virtual bool submit(CopyRun& run, std::size_t count, bool streaming) = 0;
  // Asks for copies of a run that are to be made soon, as far ahead as helps.
  virtual void ask(CopyRun& run) { (void)run; }
  // Writes tokens of finished copies to `done`; returns how many.
  virtual std::size_t poll(std::span<std::uint32_t> done) = 0;
  // Whether submit() may be left half-way, without unwinding, where media has lost a page (media/page_access.h): it
  // makes all copies itself, and remembers nothing of them.
  virtual bool may_be_cut_short() const { return false; }
  virtual std::string describe() const = 0;
  virtual CopyCounters counters() const { return {}; }
};

using CopyEngineFactory = std::function<std::unique_ptr<CopyEngine>()>;

// What EngineConfig::copy names: dsa, or a kind that make_cpu_copy_engine() knows. Throws ConfigError for what this
// machine lacks.
std::unique_ptr<CopyEngine> make_copy_engine(const std::string& kind);

// `kind`: auto (the widest vectors of this CPU), memcpy, avx2, avx512, nontemporal (vectors, always bypassing the
// cache). Throws ConfigError for a kind that this CPU lacks.
std::unique_ptr<CopyEngine> make_cpu_copy_engine(const std::string& kind);

// The raw kernel, for the benchmark that measures the machine's bound with the same instructions.
using CopyFunction = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
CopyFunction copy_function(const std::string& kind, bool streaming);

}  // namespace flashmob::engine
