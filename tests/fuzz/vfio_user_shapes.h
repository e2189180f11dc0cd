// Messages of the vfio-user protocol that are right in shape, with fields from a fuzzer's input. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzz/input.h"
#include "vfio/protocol.h"

namespace flashmob::fuzz {

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

inline std::uint32_t word(Input& in) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | in.byte();
  return value;
}
// Small numbers, pages, edges, anything.
inline std::uint64_t number(Input& in) {
  const std::uint8_t choice = in.byte();
  switch (choice >> 5) {
    case 0:
    case 1:
      return choice & 0x3F;
    case 2:
      return std::uint64_t{choice & 0x1Fu} * 4096;
    case 3:
      return std::uint64_t{1} << ((choice & 0x1F) * 2);
    case 4:
      return UINT64_MAX - (choice & 0x1F) * 4096u - (choice & 1);
    case 5:
      return 0x1000 + std::uint64_t{choice & 0x1Fu} * 4;
    case 6:
      return word(in);
    default: {
      const std::uint64_t high = word(in);
      return high << 32 | word(in);
    }
  }
}
inline std::uint32_t number32(Input& in) { return static_cast<std::uint32_t>(number(in)); }

// What a client sends as a descriptor.
enum class SentFile : std::uint8_t { memory, event, socket };

struct Shaped {
  vfio::Command command{};
  std::vector<std::byte> payload;
  std::array<SentFile, 4> files{};
  std::size_t file_count = 0;
  std::uint32_t flags = 0;
};

inline void shape_fields(Input& in, Shaped& out) {
  using vfio::Command;
  const std::uint32_t argsz = in.byte() < 240 ? 256 : number32(in);
  switch (out.command) {
    case Command::version:
      append(out.payload, vfio::Version{static_cast<std::uint16_t>(in.byte() & 1), in.byte()});
      break;
    case Command::dma_map:
      append(out.payload, vfio::DmaMap{argsz, in.byte() & 7u, number(in), number(in), number(in)});
      break;
    case Command::dma_unmap:
      append(out.payload, vfio::DmaUnmap{argsz, in.byte() & 3u, number(in), number(in)});
      break;
    case Command::device_get_info:
      append(out.payload, vfio::DeviceInfo{argsz, 0, 0, 0});
      break;
    case Command::device_get_region_info:
      append(out.payload, vfio::RegionInfo{argsz, 0, in.byte() % 12u, 0, 0, 0});
      break;
    case Command::device_get_irq_info:
      append(out.payload, vfio::IrqInfo{argsz, 0, in.byte() % 7u, 0});
      break;
    case Command::device_set_irqs:
      append(out.payload, vfio::IrqSet{argsz, in.byte() & 0x3Fu, in.byte() % 6u, number32(in), number32(in)});
      break;
    case Command::region_read:
    case Command::region_write:
      append(out.payload, vfio::RegionAccess{number(in), in.byte() % 10u, number32(in)});
      break;
    case Command::region_write_multi:
      append(out.payload, number(in));
      append(out.payload, vfio::RegionWriteOne{number(in), in.byte() % 10u, in.byte() % 10u, number(in)});
      break;
    default:
      break;
  }
}

inline Shaped shape_message(Input& in) {
  using vfio::Command;
  constexpr std::array kCommands{Command::version,
                                 Command::dma_map,
                                 Command::dma_unmap,
                                 Command::device_get_info,
                                 Command::device_get_region_info,
                                 Command::device_get_irq_info,
                                 Command::device_set_irqs,
                                 Command::region_read,
                                 Command::region_write,
                                 Command::region_write,
                                 Command::region_write_multi,
                                 Command::device_reset,
                                 Command::dma_read,
                                 static_cast<Command>(14)};
  Shaped out;
  out.command = kCommands[in.byte() % kCommands.size()];
  shape_fields(in, out);
  for (std::size_t left = in.byte() % 24; left > 0; --left) out.payload.push_back(static_cast<std::byte>(in.byte()));
  if (const std::uint8_t cut = in.byte(); cut >= 250) out.payload.resize(out.payload.size() / 2);
  out.file_count = in.byte() % (out.files.size() + 1);
  for (std::size_t i = 0; i < out.file_count; ++i) {
    const std::uint8_t kind = in.byte();
    out.files[i] = kind < 128 ? SentFile::memory : kind < 250 ? SentFile::event : SentFile::socket;
  }
  if (in.byte() >= 224) out.flags = vfio::kFlagNoReply;
  return out;
}

}  // namespace flashmob::fuzz
