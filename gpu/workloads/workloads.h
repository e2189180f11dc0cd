// The workloads as functions: each puts its data on the SSDs of a Gpu, runs kernels that fetch it themselves, compares
// the outcome with a plain computation on the CPU, and answers with plain figures.
//
// The data overwrite namespace 0 of every SSD from its first block on; several SSDs are used as stripes. Mistakes in
// the options throw ConfigError. Host code, for one thread at a time, as Gpu is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "flashmob/gpu.h"
#include "flashmob/gpu/simt/cuda_abi.h"
#include "workloads/dlrm_model.h"
#include "workloads/graph.h"

namespace flashmob::gpu::workloads {

// How a kernel reaches its data.
struct AccessOptions {
  // plain: the data lie in memory and no SSD is used; cached: software cache; uncached: every access is a command of
  // its own into a buffer of the thread; share_table: buffers of the threads, shared by all who want the same block.
  std::string access = "cached";
  std::uint64_t cache_bytes = std::uint64_t{1} << 20;  // cached
  std::uint32_t line_bytes = 4096;  // cached, share_table: a multiple of the block size; uncached: a command's size
  std::string policy = "clock";     // cached: direct | lru | clock | fifo | s3fifo
  bool preload = false;             // cached: every line is read once before the time is taken
  std::uint32_t threads = 256;      // of each kernel; a multiple of 32
};

struct CacheFigures {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t evictions = 0;
  std::uint64_t write_backs = 0;
  std::uint64_t waits = 0;
};

// What every workload answers.
struct Outcome {
  bool verified = false;         // every result is equal to the CPU's, or within the workload's stated tolerance
  std::uint64_t mismatches = 0;  // results that are not
  double max_error = 0;          // the largest relative error, where results are not whole numbers
  std::uint64_t io_errors = 0;   // accesses that failed; their values count as mismatches
  std::uint64_t duration_ns = 0;  // of the kernels, on the SSDs' clock
  std::uint64_t commands = 0;     // NVMe commands of the kernels
  CacheFigures cache;
  std::string backend;  // as Gpu::backend() says: "fibres, virtual clock"
};

struct MeanOptions {
  AccessOptions access;
  std::uint64_t count = 1 << 16;  // floats
  std::uint64_t seed = 1;
};
struct MeanResult : Outcome {
  double mean = 0;
};
MeanResult run_mean(Gpu& gpu, const MeanOptions& options = {});

struct BfsResult : Outcome {
  std::uint64_t source = 0;
  std::uint32_t depth = 0;  // levels
  std::uint64_t reached = 0;
  std::vector<std::uint32_t> levels;
};
BfsResult run_bfs(Gpu& gpu, const Csr& graph, std::uint64_t source, const AccessOptions& options = {});

struct SpmvResult : Outcome {
  std::vector<double> y;
};
SpmvResult run_spmv(Gpu& gpu, const Csr& graph, const std::vector<float>& x, const AccessOptions& options = {});

struct PagerankOptions {
  AccessOptions access;
  std::uint32_t iterations = 10;
  double damping = 0.85;
};
struct PagerankResult : Outcome {
  std::vector<double> ranks;
};
PagerankResult run_pagerank(Gpu& gpu, const Csr& graph, const PagerankOptions& options = {});

// Computation against communication: every thread reads blocks at random and computes on each, first one after the
// other, then with the next block under way while it computes.
struct CtcOptions {
  std::uint32_t threads = 64;
  std::uint32_t commands = 64;  // per thread
  std::uint32_t bytes = 4096;   // per command
  std::vector<double> ratios{0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 1.8, 2.0};
  std::uint64_t seed = 1;
};
struct CtcPoint {
  double ratio = 0;  // computation : communication
  std::uint64_t sync_ns = 0;
  std::uint64_t async_ns = 0;
  double speedup = 0;
  double ideal = 0;  // 1 + r up to r = 1, 1 + 1 / r beyond
};
struct CtcResult : Outcome {
  std::uint64_t communication_ns = 0;  // the synchronous run without computation
  std::vector<CtcPoint> points;
  double peak_speedup = 0;
  double worst_deviation = 0;  // the largest |speedup / ideal - 1|
};
CtcResult run_ctc(Gpu& gpu, const CtcOptions& options = {});

struct RandomIoOptions {
  bool write = false;
  std::uint32_t bytes = 4096;  // per command
  std::uint32_t threads = 128;
  std::uint32_t in_flight = 8;  // per thread
  std::uint64_t commands = 16384;
  std::uint64_t span_blocks = 4096;  // of `bytes`, on each SSD
  std::uint64_t seed = 1;
};
struct RandomIoResult : Outcome {
  double iops = 0;
  double bytes_per_s = 0;
};
// Commands go to the SSDs in turn. Reads and what writes leave behind are compared with the expected bytes.
RandomIoResult run_random_io(Gpu& gpu, const RandomIoOptions& options = {});

struct DlrmOptions {
  AccessOptions access;
  DlrmConfig model;                // dlrm_config(1...3)
  std::uint32_t batch = 16;
  std::uint32_t batches = 8;
  bool async = true;               // prefetch the next batch's rows while this batch computes
  std::uint64_t most_rows = 1000;  // per table
  std::string clicks;              // a Criteo file; empty: synthetic
  // Virtual time only: how long matrix products would take on a GPU.
  double flops_per_ns = 20'000;
  std::uint64_t product_overhead_ns = 3'000;
  std::uint64_t seed = 1;
};
struct DlrmResult : Outcome {
  std::string products;  // what multiplied matrices
  std::uint32_t samples = 0;
  std::vector<float> scores;  // of the last batch
};
DlrmResult run_dlrm(Gpu& gpu, const DlrmOptions& options = {});

// Elements of `element_bytes` (1, 2, 4 or 8), numbered from the start of `ssd`'s namespace 0, to and from the caller's
// memory, through the cache. A scatter is on the SSD when this returns; of equal indices one wins.
struct ElementOptions {
  AccessOptions access;
  std::uint32_t ssd = 0;
  std::uint32_t element_bytes = 4;
};
Outcome gather(Gpu& gpu, const ElementOptions& options, const std::uint64_t* indices, std::uint64_t count,
               void* elements);
Outcome scatter(Gpu& gpu, const ElementOptions& options, const std::uint64_t* indices, std::uint64_t count,
                const void* elements);

// Whole blocks, numbered from the start of a namespace, straight to and from the caller's memory, which host code
// reaches: `blocks` at each address, a command each (more where one is above the limit). Not compared with anything:
// `verified` stays false.
struct BlockOptions {
  std::uint32_t ssd = 0;
  std::uint32_t ns_index = 0;
  std::uint32_t blocks = 1;
};
Outcome gather_blocks(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count,
                      void* data);
Outcome scatter_blocks(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas, std::uint64_t count,
                       const void* data);

// Blocks that have begun to move. On a GPU the kernel is put behind what is in the caller's stream, if one was given,
// and what comes next there waits for it; elsewhere, and without a stream, it runs beside whatever else runs (fibres:
// while somebody waits). The data are in use until it has ended.
class BlockMove {
 public:
  // Waits, as wait() does.
  virtual ~BlockMove() = default;
  virtual bool done() = 0;
  // For the end, of all that is in the stream. As often as one likes. Throws if the GPU has failed.
  virtual Outcome wait() = 0;
};
// `stream`: nullptr for none. The Gpu outlives what is returned; lbas may go at once.
std::unique_ptr<BlockMove> gather_blocks_async(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas,
                                               std::uint64_t count, void* data,
                                               const simt::CudaStream* stream = nullptr);
std::unique_ptr<BlockMove> scatter_blocks_async(Gpu& gpu, const BlockOptions& options, const std::uint64_t* lbas,
                                                std::uint64_t count, const void* data,
                                                const simt::CudaStream* stream = nullptr);

}  // namespace flashmob::gpu::workloads
