// What the two ends of a vfio-user connection tell each other in the Version message: JSON, as
// docs/interop/vfio-user, "VFIO_USER_VERSION", defines it. Pure functions; no thread rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "vfio/protocol.h"

namespace flashmob::vfio {

struct Capabilities {
  std::uint64_t max_message_fds = kDefaultMaxMessageFds;  // that the sender can receive in one message
  std::uint64_t max_data_transfer_bytes = kDefaultMaxDataTransferBytes;
  std::uint64_t max_dma_maps = kDefaultMaxDmaMaps;
  std::uint64_t page_sizes = kDefaultPageSizes;  // a bit for each size
  bool write_multiple = false;

  bool operator==(const Capabilities&) const = default;
};

// Reads the text after the version numbers, with or without its NUL; empty text means the defaults. What is not known
// is skipped. Nothing if it is no JSON object, or a known name has a value of the wrong kind.
std::optional<Capabilities> parse_capabilities(std::string_view text);
// The shortest JSON for them, without a NUL.
std::string format_capabilities(const Capabilities& capabilities);

}  // namespace flashmob::vfio
