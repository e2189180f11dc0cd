// Moves bytes between media and host memory. A worker hands over copies and asks later which are done, so that a CPU,
// a DMA engine or a GPU serve alike.
#pragma once

#include <cstdint>
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

// One per worker, used by its thread only. Nothing allocates after construction.
class CopyEngine {
 public:
  // Copies that may be submitted before poll() has handed back their tokens.
  static constexpr std::size_t kMaxUnpolled = 512;

  virtual ~CopyEngine() = default;
  // Starts the first `count` of `pending`; the rest are copies that will follow soon, for prefetching only.
  // `streaming` says that the destinations will not be read again from this core's cache (client buffers that
  // outgrow it), so that stores which bypass the cache win.
  virtual void submit(std::span<const Copy> pending, std::size_t count, bool streaming) = 0;
  // Writes tokens of finished copies to `done`; returns how many.
  virtual std::size_t poll(std::span<std::uint32_t> done) = 0;
  virtual std::string describe() const = 0;
};

// `kind`: auto (the widest vectors of this CPU), memcpy, avx2, avx512, nontemporal (vectors, always bypassing the
// cache). Throws ConfigError for a kind that this CPU lacks.
std::unique_ptr<CopyEngine> make_cpu_copy_engine(const std::string& kind);

// The raw kernel, for the benchmark that measures the machine's bound with the same instructions.
using CopyFunction = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
CopyFunction copy_function(const std::string& kind, bool streaming);

}  // namespace flashmob::engine
