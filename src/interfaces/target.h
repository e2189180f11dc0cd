// What a measured run reads and writes: a file or a block device, checked before anything is done to it.
//
// Mistakes are a ConfigError; what the file system or device cannot do is an Unsupported. A device that somebody uses
// (mounted, of a volume, with partitions that are) is never written to, whatever is asked.
//
// Thread rule: open_file() on any thread, the rest on the one that made it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "flashmob/interfaces.h"
#include "interfaces/interface.h"
#include "media/mapped_media.h"

namespace flashmob::interfaces {

class Target {
 public:
  // Checks all of the options that concern the target.
  Target(const InterfaceOptions& options, const InterfaceKind& kind);

  // A descriptor of a thread's own.
  media::FileDescriptor open_file() const;
  // Whole blocks of the run.
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  void check_kind_of_file();
  void check_blocks();
  void claim();

  const InterfaceOptions& options_;
  bool writes_;
  std::optional<media::FileDescriptor> file_;
  std::optional<media::FileDescriptor> claim_;  // what keeps others from mounting the device meanwhile
  std::uint64_t size_bytes_ = 0;
  bool is_block_device_ = false;
};

bool is_write(const InterfaceOptions& options);
bool is_random(const InterfaceOptions& options);

// Why completions of this target's device cannot be polled for; empty: they can. The kernel takes the flag for it from
// any file, and waits for the interrupt all the same where the device has no queues for it.
std::string why_no_polling(int file);

}  // namespace flashmob::interfaces
