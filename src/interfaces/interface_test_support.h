// Files for tests of interfaces, and runs on them.
//
// Thread rule: a test's own.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "flashmob/error.h"
#include "flashmob/interfaces.h"
#include "interfaces/content.h"
#include "interfaces/run.h"

namespace flashmob::interfaces {

inline constexpr std::uint64_t kTestFileBytes = 512 << 10;
inline constexpr std::uint64_t kTestFileSeed = 1;

// A stamped file in the current folder, which is a disk's where a memory's may have no direct I/O.
class TestFile {
 public:
  explicit TestFile(std::uint64_t bytes = kTestFileBytes)
      : path_(std::filesystem::absolute("interface_test." + std::to_string(::getpid())).string()) {
    std::filesystem::remove(path_);
    create_stamped_file(path_, bytes, kTestFileSeed);
  }
  ~TestFile() { std::filesystem::remove(path_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  const std::string& path() const { return path_; }
  bool has_direct_io() const {
    const int file = ::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file >= 0) ::close(file);
    return file >= 0;
  }

 private:
  std::string path_;
};

// A short run by number, so that it does the same on a machine of any speed.
inline InterfaceOptions options_of(const TestFile& file, const std::string& name, std::uint64_t ios) {
  InterfaceOptions options;
  options.interface_name = name;
  options.path = file.path();
  options.direct = file.has_direct_io() && name != "mmap";
  options.ramp_ns = 0;
  options.ios = ios;
  return options;
}

inline std::unique_ptr<RunResult> run_of(const InterfaceOptions& options) {
  check_options(options);
  return MeasuredRun(options).run();
}

}  // namespace flashmob::interfaces
