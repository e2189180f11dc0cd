// The driver over NvmeTcpDevice over real sockets to a small target: the way up, data, queues, interrupts, sleep.
#include "initiator/nvme_tcp/nvme_tcp_device.h"

#include "initiator/nvme_tcp/nvme_tcp_session.h"

namespace flashmob::initiator {
namespace {

using namespace testing_tcp;

TEST(NvmeTcpDevice, DataOfAllSizesComesBack) {
  for (const int digests : {0, 1, 2, 3}) {
    FakeTcpTarget target;
    target.header_digest = (digests & 1) != 0;
    target.data_digest = (digests & 2) != 0;
    target.success_flag = digests % 2 == 0;
    target.r2t_bytes = 40'960;
    NvmeTcpOptions options = options_for(target);
    options.header_digest = options.data_digest = true;
    Session session(options);
    EXPECT_EQ(session.device.controller_id(), 17);
    unsigned seed = 1;
    for (const std::uint32_t blocks : {1u, 7u, 8u, 9u, 16u, 100u, 512u, 1000u}) {
      const std::size_t bytes = blocks * 512;
      session.fill(0, bytes, ++seed);
      ASSERT_EQ(session.io(NvmOpcode::write, blocks, blocks), 0);
      ASSERT_EQ(std::memcmp(target.media().data() + bytes, session.buffer.data(), bytes), 0) << blocks;
      ASSERT_EQ(session.io(NvmOpcode::read, blocks, blocks, kBufferBytes / 2), 0);
      ASSERT_EQ(std::memcmp(session.buffer.data(), session.buffer.data() + kBufferBytes / 2, bytes), 0) << blocks;
    }
    EXPECT_EQ(session.io(NvmOpcode::flush, 0, 1), 0);
  }
}

TEST(NvmeTcpDevice, TheStrideOfItsDoorbellsIsItsOwn) {
  FakeTcpTarget target;
  target.doorbell_stride = 3;
  Session session(options_for(target));
  EXPECT_EQ(nvme::decode_cap(session.device.read64(nvme::kRegCap)).dstrd, 0);
  EXPECT_EQ(session.device.interrupt_vectors(), kInterruptVectors);
  EXPECT_FALSE(session.device.reset()) << "fabrics have no function level reset";
  session.fill(0, 512, 1);
  EXPECT_EQ(session.io(NvmOpcode::write, 0, 1), 0);
}

TEST(NvmeTcpDevice, StatusesOfTheControllerReachTheHost) {
  FakeTcpTarget target;
  Session session(options_for(target));
  EXPECT_EQ(session.io(NvmOpcode::read, 1 << 20, 8), nvme::to_field(Status::lba_out_of_range));
  EXPECT_EQ(session.io(NvmOpcode::verify, 0, 1), nvme::to_field(Status::invalid_opcode));
  EXPECT_EQ(nvme::status_of(*session.io(NvmOpcode::read, 0, 8, 0, 5)), Status::invalid_namespace_or_format);
  EXPECT_EQ(nvme::status_of(*session.io(NvmOpcode::read, 0, 8, 0, 0xFFFFFFFF)), Status::invalid_namespace_or_format);
  EXPECT_EQ(session.io(NvmOpcode::read, 0, 8), 0) << "the queue goes on";
}

// A buffer that was mapped a moment before its command was rung is there, whatever the pump was doing meanwhile.
TEST(NvmeTcpDevice, FreshMappingsAreSeen) {
  FakeTcpTarget target;
  Session session(options_for(target));
  for (int i = 0; i < 300; ++i) {
    driver::DmaMemory fresh(session.device, 4096);
    std::array<std::byte, 4096> data;
    ASSERT_NO_THROW(session.driver.identify(0, 1, data));
    nvme::Sqe& sqe = session.pair->submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(NvmOpcode::read);
    sqe.nsid = 1;
    sqe.cdw12 = 7;
    sqe.prp1 = fresh.iova();
    session.pair->ring_sq();
    std::optional<std::uint16_t> field;
    ASSERT_TRUE(wait_for([&] {
      session.pair->reap(1,
                         [&](const nvme::Cqe& entry) { field = static_cast<std::uint16_t>(entry.status_phase >> 1); });
      return field.has_value();
    }));
    session.pair->ring_cq();
    ASSERT_EQ(field, 0) << i;
  }
}

TEST(NvmeTcpDevice, ManyQueuesAndPumps) {
  FakeTcpTarget target;
  NvmeTcpOptions options = options_for(target);
  options.pump_threads = 3;
  Session session(options);
  std::vector<driver::QueuePair*> pairs{session.pair};
  for (int i = 0; i < 7; ++i) pairs.push_back(&session.driver.create_queue_pair({.sq_entries = 8}));
  session.fill(0, kBufferBytes / 2, 9);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t q = 0; q < pairs.size(); ++q) {
      session.pair = pairs[q];
      const std::uint64_t lba = q * 16;
      ASSERT_EQ(session.io(NvmOpcode::write, lba, 8, lba * 512), 0);
      ASSERT_EQ(session.io(NvmOpcode::read, lba, 8, kBufferBytes / 2), 0);
      ASSERT_EQ(std::memcmp(session.buffer.data() + lba * 512, session.buffer.data() + kBufferBytes / 2, 4096), 0);
    }
  }
}

TEST(NvmeTcpDevice, QueuesAreDeletedAndMadeAgain) {
  for (const bool disconnect : {true, false}) {
    FakeTcpTarget target;
    target.disconnect_supported = disconnect;
    Session session(options_for(target));
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(session.io(NvmOpcode::read, 0, 8), 0);
      session.driver.delete_queue_pair(*session.pair);
      session.pair = &session.driver.create_queue_pair({.sq_entries = 16});
    }
    EXPECT_FALSE(session.driver.fatal());
    EXPECT_EQ(session.device.failure(), "");
    session.driver.shutdown(false);
    EXPECT_FALSE(session.driver.fatal());
  }
}

// More commands than the completion queue has room for: each waits for its place.
TEST(NvmeTcpDevice, AFullCompletionQueueOnlyDelays) {
  FakeTcpTarget target;
  Session session(options_for(target));
  driver::QueuePair& pair = session.driver.create_queue_pair({.sq_entries = 32, .cq_entries = 3});
  std::vector<bool> ended(31);
  for (std::uint16_t cid = 0; cid < 31; ++cid) {
    nvme::Sqe& sqe = pair.submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(NvmOpcode::flush);
    sqe.nsid = 1;
    sqe.cid = cid;
  }
  pair.ring_sq();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int i = 0; i < 31; ++i) {
    ASSERT_TRUE(wait_for([&] {
      return pair.reap(1, [&](const nvme::Cqe& entry) {
        EXPECT_EQ(entry.status_phase >> 1, 0);
        EXPECT_FALSE(ended.at(entry.cid));
        ended.at(entry.cid) = true;
      }) == 1;
    })) << i;
    pair.ring_cq();
  }
  EXPECT_EQ(pair.outstanding(), 0u);
}

// The admin queue has fewer entries on the wire than the host's ring.
TEST(NvmeTcpDevice, ManyAdminCommandsAtOnceTakeTurns) {
  FakeTcpTarget target;
  Session session(options_for(target));
  unsigned ended = 0;
  for (int i = 0; i < 60; ++i) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::set_features);
    sqe.cdw10 = 4;
    session.driver.admin_async(sqe, [&](driver::AdminResult result) { ended += result.status_field == 0; });
  }
  ASSERT_TRUE(wait_for([&] {
    session.driver.poll_admin();
    return ended == 60;
  }));
}

TEST(NvmeTcpDevice, QueueCommandsThatMakeNoSenseAreRefused) {
  FakeTcpTarget target;
  Session session(options_for(target));
  const auto run = [&](nvme::AdminOpcode opcode, std::uint32_t cdw10, std::uint32_t cdw11, std::uint64_t prp1) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.cdw10 = cdw10;
    sqe.cdw11 = cdw11;
    sqe.prp1 = prp1;
    return nvme::status_of(session.driver.admin(sqe, {}, false).status_field);
  };
  const std::uint64_t memory = session.buffer.iova();
  using enum nvme::AdminOpcode;
  EXPECT_EQ(run(create_io_cq, 0 | (7 << 16), 1, memory), Status::invalid_queue_identifier);
  EXPECT_EQ(run(create_io_cq, 1 | (7 << 16), 1, memory), Status::invalid_queue_identifier) << "it exists";
  EXPECT_EQ(run(create_io_cq, 2 | (0 << 16), 1, memory), Status::invalid_queue_size);
  EXPECT_EQ(run(create_io_cq, 2 | (128 << 16), 1, memory), Status::invalid_queue_size);
  EXPECT_EQ(run(create_io_cq, 2 | (7 << 16), 0, memory), Status::invalid_field) << "not contiguous";
  EXPECT_EQ(run(create_io_cq, 2 | (7 << 16), 1, memory + 8), Status::prp_offset_invalid);
  EXPECT_EQ(run(create_io_cq, 2 | (7 << 16), 3 | (4000u << 16), memory), Status::invalid_interrupt_vector);
  EXPECT_EQ(run(create_io_sq, 2 | (7 << 16), 1 | (9 << 16), memory), Status::completion_queue_invalid);
  EXPECT_EQ(run(create_io_sq, 2 | (200 << 16), 1 | (1 << 16), memory), Status::invalid_queue_size);
  EXPECT_EQ(run(delete_io_cq, 1, 0, 0), Status::invalid_queue_deletion) << "its submission queue is there";
  EXPECT_EQ(run(delete_io_sq, 9, 0, 0), Status::invalid_queue_identifier);
  EXPECT_EQ(run(delete_io_cq, 9, 0, 0), Status::invalid_queue_identifier);
  EXPECT_EQ(run(doorbell_buffer_config, 0, 0, memory), Status::invalid_opcode);
  EXPECT_EQ(session.io(NvmOpcode::read, 0, 8), 0);
}

// A host whose ring is gone, or whose doorbell points nowhere, has lost its controller, not its process.
TEST(NvmeTcpDevice, RingsThatAreNotThereAreFatal) {
  FakeTcpTarget target;
  Session session(options_for(target));
  driver::QueuePair& pair = session.driver.create_queue_pair({.sq_entries = 8});
  std::atomic_ref<std::uint32_t>(session.device.doorbells()[2 * pair.qid()]).store(1000);
  session.device.wake();
  EXPECT_TRUE(wait_for([&] { return session.driver.fatal(); }));
  session.driver.enable();
  session.pair = &session.driver.create_queue_pair({.sq_entries = 8});
  EXPECT_EQ(session.io(NvmOpcode::read, 0, 8), 0);
}

TEST(NvmeTcpDevice, ResetMakesANewAssociation) {
  FakeTcpTarget target;
  Session session(options_for(target));
  for (int i = 0; i < 5; ++i) {
    const unsigned before = target.connections;
    session.driver.enable();
    session.pair = &session.driver.create_queue_pair({.sq_entries = 16});
    EXPECT_EQ(target.connections, before + 2);
    ASSERT_EQ(session.io(NvmOpcode::read, 0, 8), 0);
  }
}

TEST(NvmeTcpDevice, InterruptsAreCalled) {
  FakeTcpTarget target;
  Session session(options_for(target));
  session.driver.delete_queue_pair(*session.pair);
  session.pair = &session.driver.create_queue_pair({.sq_entries = 16, .interrupts = true, .vector = 5});
  std::atomic<int> calls{0};
  session.device.set_interrupt(5, [&] { ++calls; });
  ASSERT_EQ(session.io(NvmOpcode::read, 0, 8), 0);
  EXPECT_TRUE(wait_for([&] { return calls == 1; }));
  session.device.set_interrupt(5, nullptr);
  ASSERT_EQ(session.io(NvmOpcode::read, 0, 8), 0);
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(session.device.set_interrupt(2048, [] {}), ConfigError);
}

TEST(NvmeTcpDevice, ADoorbellWakesASleepingPump) {
  FakeTcpTarget target;
  Session session(options_for(target));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(wait_for([&] { return session.device.sleeping()->load() != 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::uint64_t start_ns = now_ns();
    ASSERT_EQ(session.io(NvmOpcode::read, 0, 8), 0);
    EXPECT_LT(now_ns() - start_ns, 900'000'000u) << "its own sleep would have lasted a second";
  }
}

}  // namespace
}  // namespace flashmob::initiator
