// A session whose client shares no memory: when its queues are served by messages, and when no longer.
#include <exception>

#include "base/check.h"
#include "nvme/registers.h"
#include "transport/vfio_user/session.h"

namespace flashmob::transport {

// Called before the controller is enabled. Nothing to do where its admin queues are in shared memory, or nowhere; the
// client must also write its doorbells by messages. False if the means are lacking.
bool Session::start_messages() {
  if (by_messages_ != nullptr) forget_messages();  // a reset of the subsystem had disabled the controller
  if (doorbells_given_) return true;
  const auto aqa = nvme::decode_aqa(static_cast<std::uint32_t>(controller_->read_register(nvme::kRegAqa, 4)));
  const std::uint64_t asq = controller_->read_register(nvme::kRegAsq, 8);
  const std::uint64_t acq = controller_->read_register(nvme::kRegAcq, 8);
  if (dma_->unshared_from(asq, false) == 0 || dma_->unshared_from(acq, true) == 0) return true;
  MessageQueues::AdminQueues ours;
  try {
    if (!message_memory_) {
      message_memory_ = std::make_unique<MessageMemory>(max_client_transfer_bytes_);
      if (watch_) watch_(message_memory_->event(), true);
    }
    if (!message_queues_)
      message_queues_ = std::make_unique<MessageQueues>(*controller_, *message_memory_,
                                                        [this](std::uint16_t vector) { interrupts_->fire(vector); });
    message_memory_->resume();
    ours = message_queues_->start(
        {.sq_iova = asq, .cq_iova = acq, .sq_entries = aqa.asqs + 1u, .cq_entries = aqa.acqs + 1u});
  } catch (const std::exception&) {
    // No memory, no descriptor or no thread.
    if (message_queues_) message_queues_->forget();
    return false;
  }
  client_asq_ = asq;
  client_acq_ = acq;
  controller_->write_register(nvme::kRegAsq, 8, ours.sq_iova);
  controller_->write_register(nvme::kRegAcq, 8, ours.cq_iova);
  by_messages_.store(message_queues_.get(), std::memory_order_release);
  offer_doorbell_buffers();
  return true;
}

// From here on nothing is written to the client.
void Session::stop_messages() {
  message_memory_->cancel();
  message_queues_->stop_copying();
}

// The engine has forgotten the queues, and the client finds its registers as it wrote them.
void Session::forget_messages() {
  stop_messages();
  by_messages_.store(nullptr, std::memory_order_release);
  message_queues_->forget();
  controller_->write_register(nvme::kRegAsq, 8, client_asq_);
  controller_->write_register(nvme::kRegAcq, 8, client_acq_);
  offer_doorbell_buffers();
}

// False if the connection is over.
bool Session::pump_messages() {
  if (message_queues_ && message_queues_->has_failed()) {
    why_ = "there is not enough memory left to serve its queues";
    return false;
  }
  if (!message_memory_ || message_memory_->pump(*reader_, *dma_, socket_)) return true;
  why_ = socket_.error();
  return false;
}

// Shadow doorbells would keep from us the register accesses that end an interrupt by the line, and rings that lie in
// memory which only messages reach.
void Session::offer_doorbell_buffers() {
  controller_->offer_doorbell_buffers(!interrupts_->uses_intx() && by_messages_ == nullptr);
}

}  // namespace flashmob::transport
