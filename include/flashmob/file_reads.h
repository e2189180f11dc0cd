// Reads of files by their extents, many in flight over one queue pair: what iterates over a data set, past the kernel.
//
// A read is a list of extents, as ExtentSource gives them, and memory that their bytes go to. It becomes commands of
// whole blocks; of blocks that a file shares with others only its own bytes are handed on, holes and unwritten extents
// are zeroes. What goes wrong with one file is that file's error, and costs nobody the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flashmob/config.h"
#include "flashmob/extents.h"

namespace flashmob {

struct FileReadOptions {
  std::uint32_t depth = 32;  // commands in flight, 1...1024
  // The most that one command moves: a multiple of 4096, up to 1 MiB. A device that takes less gets less.
  std::uint64_t command_bytes = 128 << 10;
  // How long a wait without any completion lasts before all reads that have not ended fail.
  std::uint64_t timeout_ns = 30'000'000'000;
};

// A read that has ended. Where `error` is not empty, it is one sentence, and the memory holds anything.
struct FileReadDone {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  // of the file, zeroes of holes among them
  std::string error = {};
};

struct FileReadCounts {
  std::uint64_t commands = 0;
  std::uint64_t device_bytes = 0;  // that commands moved, neighbours' bytes in shared blocks among them
  std::uint64_t file_bytes = 0;    // that were handed on
  std::uint64_t zero_bytes = 0;    // of those, made without asking the device
};

// For one thread at a time. Nothing is ever written to the device.
class FileReads {
 public:
  // The first namespace of an SSD that another process serves: vfio-user:PATH or nvme-tcp:ADDRESS:PORT/NQN. Throws
  // ConfigError where it is no target, nobody serves it, or an option is not possible; ExtentError where it does not
  // answer.
  static std::unique_ptr<FileReads> open(const std::string& target, const FileReadOptions& options = {});
  // An emulated SSD of its own in this process, such as one with media cow:IMAGE; it ends with this.
  static std::unique_ptr<FileReads> open(const DeviceConfig& config, const FileReadOptions& options = {});

  // Gives up what has not ended. In the child of a fork it does nothing: all of it is the parent's.
  ~FileReads();
  FileReads(const FileReads&) = delete;
  FileReads& operator=(const FileReads&) = delete;

  // Takes on a read, without waiting. `to` has the length of all extents together, and is left alone by others until
  // the read has ended. Reads begin in their order; how many are taken on bounds memory, and is the caller's affair.
  // `tag` names it when it has ended. Throws std::invalid_argument where lengths differ.
  void start(std::uint64_t tag, std::vector<FileExtent> extents, std::span<std::byte> to);
  // What has ended since the last call; tells the device of what was started.
  std::vector<FileReadDone> poll();
  // The same, but waits until something has ended, nothing is left, or `at_most_ns` have passed.
  std::vector<FileReadDone> wait(std::uint64_t at_most_ns);
  // Gives up what has not ended: its memory is not touched and it is not told from here on.
  void abandon();

  std::uint64_t unfinished() const;  // reads
  std::uint64_t device_bytes() const;
  std::uint32_t lba_bytes() const;
  FileReadCounts counts() const;

 private:
  struct Impl;
  explicit FileReads(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The kernel's reads of files below a directory by io_uring(7), many in flight: what FileReads is compared with.
//
// For one thread at a time.
class KernelFileReads {
 public:
  // `depth` is how many reads are in flight, 1...1024. Throws ConfigError where that, the directory, or this kernel's
  // io_uring is not possible.
  static std::unique_ptr<KernelFileReads> open(const std::string& directory, std::uint32_t depth);

  // Waits for what is in flight, as the kernel writes to its memory, and gives up the rest: for ever where a file
  // system does not answer, see give_up(). In the child of a fork it does nothing.
  ~KernelFileReads();
  KernelFileReads(const KernelFileReads&) = delete;
  KernelFileReads& operator=(const KernelFileReads&) = delete;

  // Takes on a read of all of `to` from byte `offset` of a file on, named from the directory; links are not followed,
  // and what is no plain file is refused. What goes wrong is told when it has ended.
  void start(std::uint64_t tag, const std::string& path, std::uint64_t offset, std::span<std::byte> to);
  // Waits until something has ended, nothing is left, a signal comes, or `at_most_ns` have passed.
  std::vector<FileReadDone> wait(std::uint64_t at_most_ns);
  // Gives up what has not ended, and asks the kernel to; true once it has let go of all memory. False where it has not
  // within `at_most_ns`: then memory and this must stay until the process ends. Nothing is told or taken on any more.
  bool give_up(std::uint64_t at_most_ns);
  std::uint64_t unfinished() const;

 private:
  struct Impl;
  explicit KernelFileReads(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flashmob
