#include "api/bench_trace.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/text.h"
#include "media/memory_media.h"

namespace flashmob::api {
namespace {

constexpr std::uint64_t kMaxNamespaceBytes = std::uint64_t{64} << 40;
// A command is at most as large as what a host's block layer sends at once.
constexpr std::uint32_t kMaxCommandBytes = 1 << 20;
// The verifier keeps four bytes for each sector of 512, in huge pages: one for so much of a namespace.
constexpr std::uint64_t kVerifiedPerHugePage = media::kHugePageBytes / 4 * 512;

std::string other_disk(const load::TraceSummary& summary) {
  if (summary.disks.size() < 2) return "";
  return ", or choose a disk with --trace-disk out of " + load::busiest_disks(summary.disks);
}

}  // namespace

void BenchTrace::load(const BenchOptions& options) {
  if (options.trace_path.empty()) {
    if (!options.trace_disk.empty())
      throw ConfigError("--trace-disk " + load::quoted_trace_text(options.trace_disk) +
                        " is a disk of a trace; name the trace with --trace, or leave it out");
    return;
  }
  commands_ = load::load_trace(options.trace_path, {options.trace_format, options.trace_disk}, summary_);
  // Without its own timing the time of the trace says nothing; the run is limited instead.
  load::limit_trace(commands_, options.ios, options.trace_as_fast ? 0 : options.runtime_ns, summary_);
}

void BenchTrace::size_namespace(const BenchOptions& options, NamespaceConfig& config) {
  if (empty()) return;
  if (config.media == "generated" && changes_data()) {
    throw ConfigError("trace " + summary_.path +
                      " writes or trims, and --media generated cannot be written; use --media memory");
  }
  if (!options.trace_sizes_namespace) return;
  if (summary_.end_bytes > kMaxNamespaceBytes) {
    throw ConfigError("trace " + summary_.path + " reaches to " + bytes_in_words(summary_.end_bytes) +
                      ", beyond the 64 TiB of a namespace; give --size, and the report counts what wraps" +
                      other_disk(summary_));
  }
  constexpr std::uint64_t kWhole = 1 << 20;
  config.size_bytes = std::max((summary_.end_bytes + kWhole - 1) / kWhole * kWhole, kWhole);
  summary_.sized_from_trace = true;
}

void BenchTrace::fit(std::uint64_t namespace_bytes, std::uint32_t lba_bytes, std::uint32_t max_transfer_bytes) {
  if (empty()) return;
  load::fit_trace(commands_, namespace_bytes, lba_bytes, summary_);
  load::split_trace(commands_, std::min(max_transfer_bytes, kMaxCommandBytes), summary_);
}

void BenchTrace::need_memory(std::uint64_t available_bytes) const {
  // 0: the system does not say.
  if (empty() || available_bytes == 0 || summary_.namespace_bytes <= available_bytes) return;
  const std::uint64_t page_bytes = media::MemoryMedia::page_bytes_for(summary_.namespace_bytes);
  std::uint64_t needed = total_bytes(touched_ranges(commands_, load::Touch::writes, page_bytes));
  if (changes_data()) {
    const auto verified = touched_ranges(commands_, load::Touch::reads_and_writes, kVerifiedPerHugePage);
    needed += total_bytes(verified) / kVerifiedPerHugePage * media::kHugePageBytes;
  }
  if (needed <= available_bytes) return;
  throw ConfigError("trace " + summary_.path + " needs " + bytes_in_words(needed) +
                    " of memory for what it writes, of " + bytes_in_words(available_bytes) +
                    " that can be had; use --media file:PATH, or a smaller --size, into " +
                    "which requests are wrapped (the report counts them)" + other_disk(summary_));
}

std::uint32_t BenchTrace::max_io_bytes() const {
  std::uint32_t largest = static_cast<std::uint32_t>(media::kPageBytes);
  for (const load::TraceIo& io : commands_) {
    if (io.kind != load::TraceKind::trim) largest = std::max(largest, io.bytes);
  }
  return largest;
}

std::vector<load::ByteRange> BenchTrace::touched() const {
  std::vector<load::ByteRange> ranges = touched_ranges(commands_, load::Touch::reads_and_writes, media::kPageBytes);
  // The last page of a namespace need not be whole.
  if (!ranges.empty()) {
    load::ByteRange& last = ranges.back();
    last.bytes = std::min(last.bytes, summary_.namespace_bytes - last.offset_bytes);
  }
  return ranges;
}

std::vector<load::TraceIo> BenchTrace::share(std::size_t queue, std::size_t queues) const {
  std::vector<load::TraceIo> share;
  for (std::size_t i = queue; i < commands_.size(); i += queues) share.push_back(commands_[i]);
  return share;
}

}  // namespace flashmob::api
