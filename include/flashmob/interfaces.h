// One measured run of one of the kernel's I/O interfaces on a file or a block device: what `flashmob study interfaces`
// is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flashmob {

struct InterfaceOptions {
  // One of kernel_interfaces().
  std::string interface_name = "posix-sio";
  // A file or a block device.
  std::string path;
  std::string rw = "randread";  // read | write | randread | randwrite
  std::uint32_t block_bytes = 4096;
  std::uint32_t depth = 1;    // requests under way for each thread
  std::uint32_t threads = 1;  // each with a descriptor, buffers and interface of its own
  bool direct = true;         // O_DIRECT
  // Whether the target may be overwritten. A block device that is in use is not, whatever stands here.
  bool allow_writes = false;
  // Reads are held against what a study's writes leave behind; what is found there by chance counts as wrong.
  bool verify = false;
  std::uint64_t seed = 1;
  std::uint64_t ramp_ns = 1'000'000'000;
  std::uint64_t runtime_ns = 5'000'000'000;
  std::uint64_t ios = 0;  // stop after so many measured requests; 0 = by time
};

struct InterfaceInfo {
  std::string name;
  std::string submission;
  std::string completion;
  bool is_synchronous = false;  // one request at a time for each thread
};

std::vector<InterfaceInfo> kernel_interfaces();

// Makes a new file of such content as a study writes with this seed. Throws ConfigError.
void create_interface_file(const std::string& path, std::uint64_t size_bytes, std::uint64_t seed);

// run() blocks and may be called once; cancel() may be called from other threads. One run at a time in a process: what
// helper threads cost is told by which threads there are.
class InterfaceRun {
 public:
  // Looks at the target and throws ConfigError where no run could be.
  explicit InterfaceRun(const InterfaceOptions& options);
  ~InterfaceRun();
  InterfaceRun(const InterfaceRun&) = delete;
  InterfaceRun& operator=(const InterfaceRun&) = delete;

  // One JSON document (docs/guide/study.md). What cannot be measured here is one with `supported` false and the reason.
  std::string run();
  void cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashmob
