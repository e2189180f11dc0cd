// The byte stream: PDUs in pieces of every size, data to where the owner wants it, digests, and both ends' PDU types.
#include "fabrics/pdu_reader.h"

#include <algorithm>
#include <vector>

#include "fabrics/crc32c.h"
#include "gtest/gtest.h"

namespace flashmob::fabrics {
namespace {

using nvme::tcp::PduType;
using Event = PduReader::Event;
using Wire = std::vector<std::byte>;

template <class Pdu>
Wire wire_of(Pdu pdu, std::size_t data_bytes, Digests digests, std::uint8_t pda = 0) {
  Wire out(kMaxWireHeaderBytes);
  out.resize(write_header(out.data(), pdu, data_bytes, digests, pda));
  std::uint32_t digest = 0;
  for (std::size_t i = 0; i < data_bytes; ++i) {
    out.push_back(static_cast<std::byte>(i * 7 + i / 256));
    digest = crc32c(digest, &out.back(), 1);
  }
  if (digests.data && data_bytes != 0) {
    const auto bytes = std::as_bytes(std::span(&digest, 1));
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

nvme::tcp::Data data_pdu(PduType type, std::uint32_t bytes) {
  auto pdu = make_pdu<nvme::tcp::Data>(type);
  pdu.datal = bytes;
  return pdu;
}

struct Stream : ::testing::TestWithParam<std::size_t> {};

TEST_P(Stream, ArrivesInPieces) {
  const std::size_t piece = GetParam();
  for (const Digests digests :
       {Digests{false, false}, Digests{true, false}, Digests{false, true}, Digests{true, true}}) {
    for (const std::uint8_t pda : {std::uint8_t{0}, std::uint8_t{7}, std::uint8_t{31}}) {
      PduReader reader(End::host, 1024);
      reader.set_digests(digests);
      reader.set_pda(pda);
      Wire all;
      for (const std::uint32_t bytes : {4u, 512u, 5000u}) {
        const Wire one = wire_of(data_pdu(PduType::c2h_data, bytes), bytes, digests, pda);
        all.insert(all.end(), one.begin(), one.end());
        const Wire response = wire_of(make_pdu<nvme::tcp::CapsuleResp>(PduType::capsule_resp), 0, digests, pda);
        all.insert(all.end(), response.begin(), response.end());
      }
      std::vector<Wire> got;
      Wire first(3), second;
      std::size_t responses = 0;
      std::size_t at = 0;
      for (bool more = true; more;) {
        switch (reader.next()) {
          case Event::need_bytes: {
            const std::size_t here = std::min(piece, all.size() - at);
            more = here != 0;
            at += reader.feed(std::span(all).subspan(at, here));
            break;
          }
          case Event::header:
            if (reader.type() == PduType::capsule_resp) break;
            second.resize(reader.data_bytes() - first.size());
            {
              const iovec pieces[] = {{first.data(), first.size()}, {second.data(), second.size()}};
              reader.sink(pieces);
            }
            break;
          case Event::complete:
            EXPECT_TRUE(reader.data_digest_good());
            responses += reader.type() == PduType::capsule_resp;
            if (reader.type() != PduType::c2h_data) break;
            got.push_back(first);
            got.back().insert(got.back().end(), second.begin(), second.end());
            break;
          case Event::fault:
            FAIL() << "fes " << static_cast<int>(reader.fault().fes);
        }
      }
      ASSERT_EQ(got.size(), 3u);
      EXPECT_EQ(responses, 3u);
      for (const Wire& data : got) {
        for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], static_cast<std::byte>(i * 7 + i / 256)) << i;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(PduReader, Stream, ::testing::Values(1, 2, 3, 7, 64, 1000, 100'000));

TEST(PduReader, DataThatNobodyWantsIsDropped) {
  PduReader reader(End::controller);
  Wire all = wire_of(make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd), 4096, {});
  const Wire next = wire_of(make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd), 0, {});
  all.insert(all.end(), next.begin(), next.end());
  EXPECT_EQ(reader.feed(all), all.size());
  EXPECT_EQ(reader.next(), Event::header);
  EXPECT_EQ(reader.data_bytes(), 4096u);
  EXPECT_EQ(reader.next(), Event::complete);
  EXPECT_EQ(reader.next(), Event::header);
  EXPECT_EQ(reader.data_bytes(), 0u);
  EXPECT_EQ(reader.next(), Event::complete);
  EXPECT_EQ(reader.next(), Event::need_bytes);
}

TEST(PduReader, LateDataGoesStraightToTheSink) {
  PduReader reader(End::controller);
  const Wire all = wire_of(data_pdu(PduType::h2c_data, 8192), 8192, {});
  Wire sink(8192);
  reader.feed(std::span(all).first(1024));
  ASSERT_EQ(reader.next(), Event::header);
  reader.sink(sink.data());
  ASSERT_EQ(reader.next(), Event::need_bytes);
  std::array<iovec, 4> scratch;
  const auto space = reader.space(scratch);
  ASSERT_EQ(space.size(), 2u) << "the rest of the sink, and our buffer for what follows";
  EXPECT_EQ(space[0].iov_base, sink.data() + 1000);
  EXPECT_EQ(space[0].iov_len, 7192u);
}

TEST(PduReader, EachEndHasItsTypes) {
  struct Case {
    PduType type;
    std::uint8_t hlen;
    bool host;
    bool controller;
  };
  constexpr Case kCases[] = {
      {PduType::ic_req, 128, false, true},
      {PduType::ic_resp, 128, true, false},
      {PduType::h2c_term_req, 24, false, true},
      {PduType::c2h_term_req, 24, true, false},
      {PduType::capsule_cmd, 72, false, true},
      {PduType::capsule_resp, 24, true, false},
      {PduType::h2c_data, 24, false, true},
      {PduType::c2h_data, 24, true, false},
      {PduType::r2t, 24, true, false},
      {static_cast<PduType>(8), 24, false, false},
      {static_cast<PduType>(0xFF), 24, false, false},
  };
  for (const Case& c : kCases) {
    for (const End end : {End::host, End::controller}) {
      PduReader reader(end);
      Wire wire(c.hlen);
      nvme::tcp::CommonHeader head{c.type, 0, c.hlen, 0, c.hlen};
      std::memcpy(wire.data(), &head, sizeof(head));
      reader.feed(wire);
      const bool fine = end == End::host ? c.host : c.controller;
      EXPECT_EQ(reader.next(), fine ? Event::header : Event::fault) << static_cast<int>(c.type);
      if (fine) continue;
      EXPECT_EQ(reader.fault().fei, 0u);
      EXPECT_EQ(reader.header_bytes().size(), 8u);
      EXPECT_EQ(reader.next(), Event::fault) << "for good";
    }
  }
}

TEST(PduReader, DigestErrors) {
  const Digests digests{true, true};
  Wire wire = wire_of(data_pdu(PduType::c2h_data, 512), 512, digests);
  for (const std::size_t at : {std::size_t{8}, std::size_t{25}}) {
    Wire bad = wire;
    bad[at] ^= std::byte{4};
    PduReader reader(End::host);
    reader.set_digests(digests);
    reader.feed(bad);
    ASSERT_EQ(reader.next(), Event::fault) << at;
    EXPECT_EQ(reader.fault().fes, nvme::tcp::FatalError::header_digest_error);
  }
  for (const std::size_t at : {std::size_t{28}, wire.size() - 5, wire.size() - 1}) {
    Wire bad = wire;
    bad[at] ^= std::byte{4};
    PduReader reader(End::host);
    reader.set_digests(digests);
    reader.feed(bad);
    ASSERT_EQ(reader.next(), Event::header) << at;
    ASSERT_EQ(reader.next(), Event::complete) << at;
    EXPECT_FALSE(reader.data_digest_good()) << at;
  }
}

TEST(WriteHeader, PadsToTheReceiversAlignment) {
  Wire out(kMaxWireHeaderBytes, std::byte{0xAA});
  const auto pdu = data_pdu(PduType::c2h_data, 64);
  EXPECT_EQ(write_header(out.data(), pdu, 64, {}, 0), 24u);
  EXPECT_EQ(write_header(out.data(), pdu, 64, {true, false}, 0), 28u);
  EXPECT_EQ(write_header(out.data(), pdu, 64, {true, false}, 3), 32u);
  EXPECT_EQ(out[31], std::byte{0}) << "padding is zero";
  EXPECT_EQ(write_header(out.data(), pdu, 64, {true, true}, 31), 128u);
  nvme::tcp::CommonHeader head;
  std::memcpy(&head, out.data(), sizeof(head));
  EXPECT_EQ(head.pdo, 128);
  EXPECT_EQ(head.plen, 128u + 64u + 4u);
  EXPECT_EQ(head.flags, nvme::tcp::kFlagHeaderDigest | nvme::tcp::kFlagDataDigest);
  // Without data nothing is padded, and there is no data digest.
  EXPECT_EQ(write_header(out.data(), make_pdu<nvme::tcp::R2t>(PduType::r2t), 0, {true, true}, 31), 28u);
  EXPECT_EQ(write_header(out.data(), make_pdu<nvme::tcp::TermReq>(PduType::c2h_term_req), 24, {true, true}, 31), 24u);
}

}  // namespace
}  // namespace flashmob::fabrics
