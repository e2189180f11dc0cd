#include "api/bench_trace.h"

#include <algorithm>
#include <utility>

namespace flashmob::api {

void BenchTrace::load(const BenchOptions& options, std::uint64_t namespace_bytes, std::uint32_t lba_bytes) {
  if (options.trace_path.empty()) return;
  commands_ = load::load_trace(options.trace_path, options.trace_format, namespace_bytes, lba_bytes);
}

void BenchTrace::cut(std::uint32_t max_transfer_bytes) {
  std::vector<load::TraceIo> cut;
  const std::uint32_t limit = std::min(max_transfer_bytes, 1u << 20);
  for (const load::TraceIo& io : commands_) {
    const bool data = io.kind == load::TraceKind::read || io.kind == load::TraceKind::write;
    for (std::uint32_t done = 0; data && io.bytes - done > limit; done += limit)
      cut.push_back({io.time_ns, io.offset_bytes + done, limit, io.kind});
    const std::uint32_t rest = data && io.bytes > 0 ? (io.bytes - 1) % limit + 1 : io.bytes;
    cut.push_back({io.time_ns, io.offset_bytes + io.bytes - rest, rest, io.kind});
  }
  commands_ = std::move(cut);
  max_io_bytes_ = std::max(limit, 4096u);
}

std::vector<load::TraceIo> BenchTrace::share(std::size_t queue, std::size_t queues) const {
  std::vector<load::TraceIo> share;
  for (std::size_t i = queue; i < commands_.size(); i += queues) share.push_back(commands_[i]);
  return share;
}

}  // namespace flashmob::api
