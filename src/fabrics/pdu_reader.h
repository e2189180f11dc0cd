// Cuts a TCP byte stream into NVMe/TCP PDUs and checks what can be checked without knowing the connection's commands:
// types, lengths, offsets, flags, digests (NVMe TCP transport 1.0c, clause 3.6).
//
// Bytes of data go to memory that the owner chooses when it has seen the PDU's header; what has not arrived by then is
// received straight into that memory. The use: receive into space(), call received(), then call next() until it asks
// for bytes. One thread at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "fabrics/pdu.h"
#include "nvme/tcp.h"

namespace flashmob::fabrics {

enum class End : std::uint8_t { host, controller };

class PduReader {
 public:
  enum class Event : std::uint8_t {
    need_bytes,
    header,    // a PDU's header is there and sound; its data goes where sink() says, or is dropped
    complete,  // all of the PDU is there
    fault,     // the stream cannot go on: fault() says why, next() says nothing else any more
  };

  // `reader` is the end that receives.
  explicit PduReader(End reader, std::size_t buffer_bytes = 64 * 1024);

  // From the next PDU on.
  void set_digests(Digests digests) { digests_ = digests; }
  // The alignment of data that we asked the other end for.
  void set_pda(std::uint8_t pda) { pda_ = pda; }

  // Where to receive, as long as next() asked for bytes: what is left of the sink, then our buffer. Uses `scratch`,
  // which must hold at least two elements.
  std::span<iovec> space(std::span<iovec> scratch);
  void received(std::size_t bytes);
  // For those who have the bytes already; takes as many as fit and returns how many.
  std::size_t feed(std::span<const std::byte> bytes);

  Event next();

  // From `header` to the next call of next() after `complete`.
  nvme::tcp::PduType type() const { return common().type; }
  const nvme::tcp::CommonHeader& common() const {
    return *reinterpret_cast<const nvme::tcp::CommonHeader*>(header_.data());
  }
  template <class Pdu>
  Pdu pdu() const {
    Pdu out;
    std::memcpy(&out, header_.data(), sizeof(out));
    return out;
  }
  // What is known of the header; after a fault perhaps only its common part.
  std::span<const std::byte> header_bytes() const { return {header_.data(), known_}; }
  std::size_t data_bytes() const { return data_bytes_; }
  // After `header`, before the next call of next(): together exactly data_bytes(). Not called: the data is dropped.
  void sink(std::span<const iovec> pieces);
  void sink(std::byte* to) {
    const iovec piece{to, data_bytes_};
    sink(std::span(&piece, 1));
  }
  // While data is still to come: how much, and other memory for it, because the sink's may have been taken away. The
  // pieces are together exactly data_left() bytes; none at all: what comes is dropped.
  std::size_t data_left() const { return stage_ == Stage::data || stage_ == Stage::padding ? data_left_ : 0; }
  void replace_sink(std::span<const iovec> pieces);
  // Some of a PDU has come, and not all of it.
  bool is_inside_pdu() const { return buffered() != 0 || (stage_ != Stage::common && stage_ != Stage::done); }
  // With `complete`: false if the PDU carried a digest that does not fit its data.
  bool data_digest_good() const { return data_digest_good_; }
  const PduFault& fault() const { return fault_; }

 private:
  enum class Stage : std::uint8_t { common, header, padding, data, digest, done, failed };

  std::size_t buffered() const { return end_ - begin_; }
  Event fail(nvme::tcp::FatalError fes, std::uint32_t fei);
  bool check_common();
  bool check_offsets(std::size_t header_end);
  bool check_header_digest();
  void take_data();

  const End reader_;
  Digests digests_;
  std::uint8_t pda_ = 0;
  // Not cleared: what comes is written before it is read, and most connections never fill it.
  const std::size_t buffer_bytes_;
  const std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;  // of what is in the buffer and not yet used
  std::size_t end_ = 0;
  Stage stage_ = Stage::common;
  alignas(8) std::array<std::byte, nvme::tcp::kMaxHeaderBytes> header_{};
  std::size_t known_ = 0;  // bytes of header_ that belong to this PDU
  std::size_t padding_bytes_ = 0;
  std::size_t data_bytes_ = 0;
  std::size_t data_left_ = 0;
  bool data_digest_ = false;  // this PDU has one
  std::uint32_t crc_ = 0;
  bool data_digest_good_ = true;
  std::vector<iovec> sink_;     // empty: the data is dropped
  std::size_t sink_piece_ = 0;  // the piece that is being filled
  std::size_t sink_offset_ = 0;
  PduFault fault_{};
};

}  // namespace flashmob::fabrics
