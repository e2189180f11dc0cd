// Opcodes of admin commands (NVMe Base 2.0c, Figure 138) and NVM I/O commands (NVM command set 1.0c, Figure 12).
#pragma once

#include <cstdint>

namespace flashmob::nvme {

enum class AdminOpcode : std::uint8_t {
  delete_io_sq = 0x00,
  create_io_sq = 0x01,
  get_log_page = 0x02,
  delete_io_cq = 0x04,
  create_io_cq = 0x05,
  identify = 0x06,
  abort = 0x08,
  set_features = 0x09,
  get_features = 0x0A,
  async_event_request = 0x0C,
  namespace_management = 0x0D,
  namespace_attachment = 0x15,
  keep_alive = 0x18,
  directive_send = 0x19,
  directive_receive = 0x1A,
  doorbell_buffer_config = 0x7C,
  format_nvm = 0x80,
};

enum class NvmOpcode : std::uint8_t {
  flush = 0x00,
  write = 0x01,
  read = 0x02,
  write_uncorrectable = 0x04,
  compare = 0x05,
  write_zeroes = 0x08,
  dataset_management = 0x09,
  verify = 0x0C,
  io_management_receive = 0x12,
  copy = 0x19,
  io_management_send = 0x1D,
};

// Those that the Zoned Namespace command set 1.1 adds to the NVM command set's.
enum class ZonedOpcode : std::uint8_t {
  zone_management_send = 0x79,
  zone_management_receive = 0x7A,
  zone_append = 0x7D,
};

// Those of the Key Value command set 1.0 (clause 3, Figure 5), which has Flush, too. The first two are numbers that
// mean Write and Read in others.
enum class KvOpcode : std::uint8_t {
  store = 0x01,
  retrieve = 0x02,
  list = 0x06,
  delete_key = 0x10,
  exist = 0x14,
};

}  // namespace flashmob::nvme
