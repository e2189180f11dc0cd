// libFuzzer target: a hostile client of the vfio-user door beside a victim, both with queues in memory that they share,
// as QEMU and SPDK have them. No threads and no waiting: the engine stands in virtual time and is polled by the input,
// so that every race between a client's messages, its doorbells and each of the engine's actors can be had.
//
// Input: which engine and which rights, then steps: messages of the right shape whose fields the input draws, NVMe
// commands that are right but for what the input changes, doorbells, bytes anywhere, files cut short, eventfds whose
// flags and counters change, answers that are left unread, resources that run out, time. Whatever comes, every command
// is answered exactly once, a connection ends only where the session says why, nothing is left behind, the victim's
// commands succeed with the right data, and nothing of the victim's ever reaches the client.
// (Memory without descriptors: vfio_user_messages_fuzz.)
#include "fuzz/vfio_user_client.h"
#include "fuzz/vfio_user_victim.h"

namespace {

using namespace flashmob;
using namespace flashmob::fuzz;

constexpr int kMaxSteps = 256;
constexpr int kMaxClients = 4;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  prefer_small_pages();
  Input in(data, size);
  const std::uint8_t shape = in.byte();
  VfioUserWorld world(VfioUserMachine::get(shape % VfioUserMachine::kKinds), static_cast<std::uint8_t>(shape >> 4 & 3));
  {
    Victim victim(world);
    int clients = 0;
    std::unique_ptr<HostileClient> client;
    for (int steps = 0; steps < kMaxSteps && !in.empty(); ++steps) {
      if (!client || !client->alive()) {
        if (clients++ == kMaxClients) break;
        client.reset();
        client = std::make_unique<HostileClient>(world, in.byte());
        continue;
      }
      const std::uint8_t choice = in.byte();
      if (choice < 16)
        victim.step(in);
      else
        client->step(choice, in);
    }
    if (client) client->end();
    client.reset();
    victim.check_all();
  }
  world.check_empty();
  return 0;
}
