// What a controller must not send, and the termination request that it gets for it.
#include <functional>
#include <string>

#include "initiator/nvme_tcp/tcp_stream_wire.h"

namespace flashmob::initiator {
namespace {

using namespace testing_wire;

// What the controller must not send, and the fatal error status that it is told of.
struct Illegal {
  const char* name;
  std::function<std::vector<std::byte>(Wire&)> bytes;
  tcp::FatalError expected;
};

class TcpStreamIllegal : public testing::TestWithParam<Illegal> {};

TEST_P(TcpStreamIllegal, EndsTheConnection) {
  Wire wire;
  // CID 1 reads, CID 2 writes, CID 3 has no data.
  ASSERT_EQ(wire.start(Op::read, 1, 4096), Status::success);
  ASSERT_EQ(wire.start(Op::write, 2, 65536), Status::success);
  ASSERT_EQ(wire.start(Op::flush, 3, 0), Status::success);
  wire.turn();
  wire.put(GetParam().bytes(wire));
  wire.turn();
  EXPECT_TRUE(wire.stream->lost());
  EXPECT_EQ(wire.completions.size(), 3u);
  EXPECT_EQ(wire.fatal_error(), static_cast<std::uint16_t>(GetParam().expected));
}

std::vector<std::byte> raw(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  bytes.resize(128);
  return bytes;
}

std::vector<std::byte> several_r2ts(Wire& wire) {
  std::vector<std::byte> all;
  for (std::uint32_t i = 0; i < kMaxR2tsPerCommand + 1; ++i) {
    const auto one = wire.r2t(2, static_cast<std::uint16_t>(i), i * 4096, 4096);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

using tcp::FatalError;

INSTANTIATE_TEST_SUITE_P(
    Pdus, TcpStreamIllegal,
    testing::Values(
        Illegal{"UnknownType", [](Wire&) { return raw({0x3F, 0, 24, 0, 24, 0, 0, 0}); },
                FatalError::invalid_header_field},
        Illegal{"HostsOwnType", [](Wire&) { return raw({0x04, 0, 72, 0, 72, 0, 0, 0}); },
                FatalError::invalid_header_field},
        Illegal{"WrongHeaderLength", [](Wire&) { return raw({0x05, 0, 16, 0, 24, 0, 0, 0}); },
                FatalError::invalid_header_field},
        Illegal{"WrongPduLength", [](Wire&) { return raw({0x05, 0, 24, 0, 20, 0, 0, 0}); },
                FatalError::invalid_header_field},
        Illegal{"DigestThatWasNotAgreedUpon", [](Wire&) { return raw({0x05, 1, 24, 0, 28, 0, 0, 0}); },
                FatalError::invalid_header_field},
        Illegal{"SecondConnectionResponse", [](Wire&) { return raw({0x01, 0, 128, 0, 128, 0, 0, 0}); },
                FatalError::sequence_error},
        Illegal{"ResponseToNothing", [](Wire& w) { return w.response(77); }, FatalError::invalid_header_field},
        Illegal{"DataForNothing", [](Wire& w) { return w.data(77, 0, 512, kLast); }, FatalError::invalid_header_field},
        Illegal{"DataForAWrite", [](Wire& w) { return w.data(2, 0, 512, kLast); }, FatalError::invalid_header_field},
        Illegal{"DataForACommandWithout", [](Wire& w) { return w.data(3, 0, 512, kLast); },
                FatalError::invalid_header_field},
        Illegal{"DataBeyondTheBuffer", [](Wire& w) { return w.data(1, 0, 4100, kLast); },
                FatalError::data_out_of_range},
        Illegal{"DataFarBeyondTheBuffer", [](Wire& w) { return w.data(1, 0xFFFFFFFC, 512, kLast); },
                FatalError::data_out_of_range},
        Illegal{"DataOutOfOrder", [](Wire& w) { return w.data(1, 512, 512, 0); }, FatalError::sequence_error},
        Illegal{"SuccessBeforeTheLast", [](Wire& w) { return w.data(1, 0, 512, kSuccess); },
                FatalError::invalid_header_field},
        Illegal{"R2tForNothing", [](Wire& w) { return w.r2t(77, 0, 0, 4096); }, FatalError::invalid_header_field},
        Illegal{"R2tForARead", [](Wire& w) { return w.r2t(1, 0, 0, 4096); }, FatalError::invalid_header_field},
        Illegal{"R2tOfNothing", [](Wire& w) { return w.r2t(2, 0, 0, 0); }, FatalError::data_out_of_range},
        Illegal{"R2tBeyondTheBuffer", [](Wire& w) { return w.r2t(2, 0, 0, 65540); }, FatalError::data_out_of_range},
        Illegal{"R2tOutOfOrder", [](Wire& w) { return w.r2t(2, 0, 4096, 4096); }, FatalError::sequence_error},
        Illegal{"MoreR2tsThanAllowed", several_r2ts, tcp::kR2tLimitExceeded}),
    [](const auto& param) { return std::string(param.param.name); });

TEST(TcpStream, AnAnswerBeforeTheDataIsAskedForEndsIt) {
  Wire wire;
  ASSERT_EQ(wire.start(Op::write, 2, 65536), Status::success);
  wire.turn();
  std::vector<std::byte> bytes = wire.r2t(2, 0, 0, 65536);
  const auto answer = wire.response(2);
  bytes.insert(bytes.end(), answer.begin(), answer.end());
  wire.put(bytes);
  wire.turn();
  EXPECT_TRUE(wire.stream->lost());
}

TEST(TcpStream, DamagedHeadersEndIt) {
  TcpStreamLimits limits = small_limits();
  limits.digests = {true, false};
  Wire wire(limits);
  ASSERT_EQ(wire.start(Op::flush, 1, 0), Status::success);
  wire.turn();
  auto bytes = wire.response(1);
  bytes[10] ^= std::byte{1};
  wire.put(bytes);
  wire.turn();
  EXPECT_TRUE(wire.stream->lost());
  EXPECT_EQ(wire.fatal_error(), static_cast<std::uint16_t>(tcp::FatalError::header_digest_error));
}

}  // namespace
}  // namespace flashmob::initiator
