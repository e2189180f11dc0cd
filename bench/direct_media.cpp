// Media past the page cache beside a mapped file, and both beside what the disk gives: random reads and writes of 4 KiB
// without timing model or cache of ours, and a plain loop that keeps as many transfers of the same file under way by
// io_uring. Windows of all three alternate within one run, so that ratios compare like with like.
//
// A mapped file that fits into memory is read from there: that is what it is for. Give a size beyond the machine's
// memory to see the two where direct: is of use.
// Usage: bench_direct_media FOLDER [WINDOWS] [SIZE_MIB] [DEPTH]
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/rng.h"
#include "bench/bench_common.h"
#include "media/io_ring.h"

namespace {

using namespace flashmob;

constexpr std::uint32_t kBytes = 4096;
constexpr std::uint64_t kWindowNs = 1'000'000'000;

// Transfers per second; 0 where io_uring is forbidden.
double raw_iops(const std::string& path, std::uint64_t size_bytes, std::uint32_t depth, bool is_write) {
  const int fd = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  const std::unique_ptr<std::byte, void (*)(void*)> buffers(
      static_cast<std::byte*>(std::aligned_alloc(kBytes, std::size_t{depth} * kBytes)), std::free);
  std::fill_n(buffers.get(), std::size_t{depth} * kBytes, std::byte{1});
  std::uint64_t count = 0;
  std::uint64_t took_ns = 1;
  if (const auto port = fd < 0 ? nullptr : media::make_io_ring(fd, depth)) {
    Rng rng(7);
    const auto submit = [&](std::uint32_t token) {
      port->submit({rng.below(size_bytes / kBytes) * kBytes, buffers.get() + std::size_t{token} * kBytes, kBytes, token,
                    is_write, false});
    };
    for (std::uint32_t token = 0; token < depth; ++token) submit(token);
    const Clock clock = Clock::real();
    const std::uint64_t start_ns = clock.now_ns();
    std::array<media::BlockDone, 64> done;
    for (; took_ns < kWindowNs; took_ns = clock.now_ns() - start_ns) {
      port->kick();
      const std::size_t ended = port->poll(done);
      for (std::size_t i = 0; i < ended; ++i) {
        if (done[i].result != static_cast<std::int32_t>(kBytes)) return 0;
        submit(done[i].token);
      }
      count += ended;
    }
  }
  if (fd >= 0) ::close(fd);
  return static_cast<double>(count) * 1e9 / static_cast<double>(took_ns);
}

bench::Outcome served_iops(const std::string& media, std::uint32_t depth, bool is_write) {
  DeviceConfig device;
  device.subsystem.namespaces[0] = {.size_bytes = 0, .media = media, .cache_bytes = 0};
  device.timing.model = "none";
  BenchOptions options;
  options.rw = is_write ? "randwrite" : "randread";
  options.block_sizes = {{kBytes, 1}};
  options.queue_depth = depth;
  options.ramp_ns = kWindowNs / 5;
  options.runtime_ns = kWindowNs;
  options.verify_percent = is_write ? 0 : 1;
  return bench::run(device, options);
}

void compare(const std::string& path, std::uint64_t size_bytes, std::uint32_t depth, int windows, bool is_write) {
  std::vector<double> raw, direct, file, of_raw, of_file;
  double errors = 0;
  for (int window = 0; window < windows; ++window) {
    raw.push_back(raw_iops(path, size_bytes, depth, is_write) / 1e3);
    const bench::Outcome past = served_iops("direct:" + path, depth, is_write);
    const bench::Outcome mapped = served_iops("file:" + path, depth, is_write);
    errors += past.verify_errors + mapped.verify_errors;
    direct.push_back(past.iops / 1e3);
    file.push_back(mapped.iops / 1e3);
    of_raw.push_back(raw.back() == 0 ? 0 : direct.back() / raw.back());
    of_file.push_back(direct.back() / file.back());
  }
  std::printf("%s, 4 KiB, depth %u, %.0f verify errors\n", is_write ? "random writes" : "random reads", depth, errors);
  bench::print_summary("  plain io_uring loop", "kIOPS", raw);
  bench::print_summary("  direct:", "kIOPS", direct);
  bench::print_summary("  file:", "kIOPS", file);
  bench::print_summary("  direct: / plain loop", "", of_raw);
  bench::print_summary("  direct: / file:", "", of_file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_direct_media FOLDER [WINDOWS] [SIZE_MIB] [DEPTH]\n");
    return 2;
  }
  const int windows = argc > 2 ? std::atoi(argv[2]) : 5;
  const std::uint64_t size_bytes = (argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1024) << 20;
  const auto depth = static_cast<std::uint32_t>(argc > 4 ? std::atoi(argv[4]) : 32);
  const std::string path = std::string(argv[1]) + "/bench_direct_media.img";
  try {
    // Written once, so that no transfer meets a block that the file system has still to make.
    DeviceConfig device;
    device.subsystem.namespaces[0] = {.size_bytes = size_bytes, .media = "direct:" + path, .cache_bytes = 0};
    BenchOptions options;
    options.runtime_ns = options.ramp_ns = 1'000'000;
    options.verify_percent = 1;
    Bench(device, options).run();
    for (const bool is_write : {false, true}) compare(path, size_bytes, depth, windows, is_write);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_direct_media: %s\n", error.what());
  }
  std::filesystem::remove(path);
}
