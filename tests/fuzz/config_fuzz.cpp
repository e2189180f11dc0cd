// libFuzzer target: device configurations that any caller of the C++ or Python API could fill in.
//
// Input: bytes from which every field of a DeviceConfig is drawn: its default, a value near a documented bound, or
// anything. validate() must refuse it with one printable sentence, or every range that flashmob/config.h documents
// must hold; the ranges are written out here a second time on purpose.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "base/check.h"
#include "flashmob/config.h"

namespace {

using namespace flashmob;

// Hands out the input piece by piece; zeroes, which stand for defaults, once it is used up.
class Source {
 public:
  Source(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  std::uint64_t word() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }

  // Leaves the default, or sets a power of two, its neighbours, or anything.
  template <class T>
  void number(T& value) {
    const std::uint8_t choice = byte();
    if (choice < 0x80) return;
    const std::uint64_t power = std::uint64_t{1} << (choice & 0x1F);
    switch ((choice >> 5) & 3) {
      case 0:
        value = static_cast<T>(power);
        break;
      case 1:
        value = static_cast<T>(power - 1);
        break;
      case 2:
        value = static_cast<T>(power + 1);
        break;
      default:
        value = static_cast<T>(word());
    }
  }
  void real(double& value) {
    constexpr std::array kSpecial{0.0,
                                  -1.0,
                                  1.0,
                                  1e-300,
                                  1e300,
                                  std::numeric_limits<double>::infinity(),
                                  std::numeric_limits<double>::quiet_NaN(),
                                  0.02};
    const std::uint8_t choice = byte();
    if (choice < 0x80) return;
    value = choice < 0xC0 ? kSpecial[choice % kSpecial.size()] : std::bit_cast<double>(word());
  }
  void text(std::string& value) {
    constexpr std::array<std::string_view, 12> kWords{
        "none", "simple", "memory", "generated", "file:x", "cow:", "avx512", "auto", "", "nqn.", "file:", "cow:y"};
    const std::uint8_t choice = byte();
    if (choice < 0x80) return;
    if (choice < 0xC0) {
      value = kWords[choice % kWords.size()];
      return;
    }
    value.clear();
    for (int left = choice & 0x3F; left > 0; --left) value += static_cast<char>(byte());
  }
  bool flag() { return (byte() & 1) != 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

DeviceConfig draw(Source& in) {
  DeviceConfig c;
  in.text(c.timing.model);
  in.real(c.timing.read_iops);
  in.real(c.timing.write_iops);
  in.number(c.timing.read_latency_ns);
  in.number(c.timing.write_latency_ns);
  in.number(c.timing.instances);
  in.number(c.timing.unit_bytes);
  for (std::uint64_t* limit :
       {&c.timing.read_bytes_per_s, &c.timing.write_bytes_per_s, &c.timing.link_bytes_per_s, &c.timing.path_ns})
    in.number(*limit);
  c.timing.per_request_updates = in.flag();
  for (std::string* text : {&c.subsystem.nqn, &c.subsystem.serial, &c.subsystem.model, &c.subsystem.firmware})
    in.text(*text);
  in.number(c.subsystem.spare_capacity_bytes);
  std::uint16_t namespaces = 1;
  in.number(namespaces);
  c.subsystem.namespaces.resize(namespaces % 300);
  for (NamespaceConfig& ns : c.subsystem.namespaces) {
    in.number(ns.size_bytes);
    in.number(ns.lba_bytes);
    in.text(ns.media);
    ns.shared = in.flag();
  }
  in.number(c.controller.max_queue_pairs);
  in.number(c.controller.max_queue_entries);
  in.number(c.controller.max_transfer_bytes);
  in.number(c.controller.interrupt_vectors);
  in.number(c.controller.abort_limit);
  in.number(c.controller.async_event_limit);
  in.number(c.engine.units);
  in.number(c.engine.workers);
  in.number(c.engine.fetch_limit);
  c.engine.cores.resize(in.byte() % 4);
  for (std::uint32_t& core : c.engine.cores) in.number(core);
  in.text(c.engine.copy);
  in.number(c.engine.idle_spin_ns);
  in.number(c.engine.idle_sleep_ns);
  in.number(c.engine.wheel_shift);
  in.real(c.fidelity.max_iops_error);
  in.number(c.fidelity.max_error_ns);
  in.real(c.fidelity.max_error_share);
  in.number(c.fidelity.gap_ns);
  return c;
}

template <class T>
bool within(T value, T low, T high) {
  return low <= value && value <= high;
}

bool is_ascii(const std::string& text, std::size_t limit) {
  for (const char c : text) {
    if (c < 0x20 || c > 0x7E) return false;
  }
  return text.size() <= limit;
}

void check_timing(const TimingConfig& t) {
  FLASHMOB_CHECK(t.model == "none" || t.model == "simple" || t.model == "nand");
  FLASHMOB_CHECK(within(t.unit_bytes, 512u, 1u << 20) && std::has_single_bit(t.unit_bytes));
  // What follows are parameters that a medium's model does not read.
  if (t.model == "nand") return;
  FLASHMOB_CHECK(within(t.instances, 1u, 1024u) && std::has_single_bit(t.instances));
  for (const double iops : {t.read_iops, t.write_iops}) {
    FLASHMOB_CHECK(std::isfinite(iops) && iops > 0);
    if (t.model == "simple") FLASHMOB_CHECK(t.instances * 1e9 / iops <= 1e12);
  }
  // A write may be answered by a buffer before it is served (docs/decisions/0009); a read may not.
  if (t.model == "simple") FLASHMOB_CHECK(t.instances * 1e9 / t.read_iops <= static_cast<double>(t.read_latency_ns));
  for (const std::uint64_t limit : {t.read_bytes_per_s, t.write_bytes_per_s, t.link_bytes_per_s})
    FLASHMOB_CHECK(limit == 0 || within<std::uint64_t>(limit, 1'000'000, 10'000'000'000'000));
}

void check_subsystem(const SubsystemConfig& s) {
  FLASHMOB_CHECK(s.nqn.starts_with("nqn.") && is_ascii(s.nqn, 223));
  FLASHMOB_CHECK(is_ascii(s.serial, 20) && is_ascii(s.model, 40) && is_ascii(s.firmware, 8));
  FLASHMOB_CHECK(s.namespaces.size() <= 256);
  for (const NamespaceConfig& ns : s.namespaces) {
    FLASHMOB_CHECK(ns.lba_bytes == 512 || ns.lba_bytes == 4096);
    FLASHMOB_CHECK(ns.size_bytes <= std::uint64_t{64} << 40 && ns.size_bytes % ns.lba_bytes == 0);
    const auto is_at_a_path = [&ns](const std::string& kind) { return ns.media.starts_with(kind) && ns.media != kind; };
    const bool backed = is_at_a_path("file:") || is_at_a_path("direct:") || is_at_a_path("cow:");
    FLASHMOB_CHECK(backed || ((ns.media == "memory" || ns.media == "generated") && ns.size_bytes > 0));
  }
}

void check_limits(const ControllerConfig& c, const EngineConfig& e, const FidelityConfig& f) {
  FLASHMOB_CHECK(within(c.max_queue_pairs, 1u, 4096u) && within(c.max_queue_entries, 2u, 65536u));
  FLASHMOB_CHECK(within(c.max_transfer_bytes, 4096u, 16u << 20) && std::has_single_bit(c.max_transfer_bytes));
  FLASHMOB_CHECK(within(c.interrupt_vectors, 1u, 4097u));
  FLASHMOB_CHECK(within(c.abort_limit, 1u, 256u) && within(c.async_event_limit, 1u, 256u));
  FLASHMOB_CHECK(within(e.units, 1u, 64u) && e.workers <= 16 && within(e.fetch_limit, 1u, 1024u));
  FLASHMOB_CHECK(e.copy == "auto" || e.copy == "memcpy" || e.copy == "avx2" || e.copy == "avx512" ||
                 e.copy == "nontemporal" || e.copy == "dsa");
  FLASHMOB_CHECK(e.wheel_shift < 64 && e.idle_sleep_ns > 0);
  for (const double share : {f.max_iops_error, f.max_error_share}) FLASHMOB_CHECK(within(share, 0.0, 1.0));
  FLASHMOB_CHECK(f.gap_ns > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Source in(data, size);
  const DeviceConfig config = draw(in);
  try {
    config.validate();
  } catch (const ConfigError& error) {
    const std::string_view message = error.what();
    FLASHMOB_CHECK(message.find(" = ") != std::string_view::npos && message.size() < 1000);
    for (const char c : message) FLASHMOB_CHECK(c >= 0x20 && c < 0x7F);
    return 0;
  }
  check_timing(config.timing);
  check_subsystem(config.subsystem);
  check_limits(config.controller, config.engine, config.fidelity);
  return 0;
}
