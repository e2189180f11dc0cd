// Setting up one NVMe/TCP connection, step by step and blocking: TCP, ICReq, Connect, authentication; and single
// commands on it, which is all that discovery needs (NVMe TCP transport 1.0c, 3.5; Base 2.0c, chapter 6).
//
// For one thread, never a pump thread. Everything waits at most the options' timeout, and no longer than until the host
// is in a hurry, and throws FabricsError.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "driver/patience.h"
#include "fabrics/pdu.h"
#include "fabrics/pdu_reader.h"
#include "fabrics/stream.h"
#include "initiator/nvme_tcp/nvme_tcp_options.h"
#include "nvme/command.h"
#include "nvme/fabrics.h"

namespace flashmob::initiator {

class FabricsError : public std::runtime_error {
 public:
  explicit FabricsError(const std::string& message, bool reached = true)
      : std::runtime_error(message), reached_(reached) {}
  // A target has answered, so that the address is not what is wrong.
  bool reached() const { return reached_; }

 private:
  bool reached_;
};

class FabricsChannel {
 public:
  // Connects to the address, by TLS if the options have a key or an authentication has made this one, and exchanges
  // ICReq and ICResp.
  explicit FabricsChannel(const NvmeTcpOptions& options, const fabrics::TlsPsk* generated = nullptr);
  ~FabricsChannel();
  FabricsChannel(const FabricsChannel&) = delete;
  FabricsChannel& operator=(const FabricsChannel&) = delete;

  // Connect, and authentication if the controller wants it. Returns the controller's identifier.
  std::uint16_t connect(const nvme::Connect& fields, const std::string& subsystem_nqn, std::uint16_t cntlid);
  // Connects an admin queue only to authenticate, and to have that make a key of TLS.
  fabrics::TlsPsk make_key();
  // Runs one command to its end: `out` goes in the capsule, or `in` is received; not both.
  nvme::Cqe command(nvme::Sqe sqe, std::span<const std::byte> out, std::span<std::byte> in);
  std::uint64_t property(std::uint32_t offset, bool eight_bytes);
  void set_property(std::uint32_t offset, std::uint32_t value);

  fabrics::Digests digests() const { return digests_; }
  std::uint32_t max_h2c_bytes() const { return max_h2c_bytes_; }
  std::uint8_t cpda() const { return cpda_; }
  // The bytes' stream and its socket, from now on the caller's.
  fabrics::Stream release();

 private:
  void open_socket();
  void secure(const fabrics::TlsPsk& psk);
  std::string tls_failure() const;
  void initialize();
  void authenticate(const std::string& subsystem_nqn, bool make_key);
  void be_patient() {
    patience_ = driver::Patience(std::chrono::milliseconds(options_.timeout_ms), options_.is_hurried);
  }
  void wait(short events, const char* what);
  void send_all(std::span<const std::byte> bytes);
  // Receives up to and including the next header or the end of a PDU.
  fabrics::PduReader::Event receive();
  [[noreturn]] void refuse(const std::string& what) const;
  void check(const nvme::Cqe& entry, const char* what) const;

  const NvmeTcpOptions& options_;
  std::optional<fabrics::TlsPsk> made_;  // by authenticate()
  driver::Patience patience_;
  bool reached_ = false;  // the other end speaks NVMe/TCP, or TLS
  int fd_ = -1;
  fabrics::Stream stream_{-1};  // over fd_, once that is connected
  fabrics::PduReader reader_;
  fabrics::Digests digests_;
  std::uint32_t max_h2c_bytes_ = 0;
  std::uint8_t cpda_ = 0;
  std::uint16_t next_cid_ = 0;
};

}  // namespace flashmob::initiator
