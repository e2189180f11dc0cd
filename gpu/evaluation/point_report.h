// What a point has measured, as documents: the benchmark's result that all hosts give, judged by the same rule, and
// what only an engine on a GPU has. Pure.
#pragma once

#include <string>

#include "evaluation/evaluation.h"
#include "evaluation/point_run.h"

namespace flashmob::gpu::evaluation {

// Where it ran.
struct PointPlace {
  std::string backend;  // cuda, threads or fibres
  std::string device;
  std::uint32_t multiprocessors = 0;  // 0: no GPU
  simt::ClockReport clock;            // of a GPU
};

// The rate that the model gives for a closed loop of as many threads as there are at once, when nothing takes time but
// the SSD.
double model_iops(const PointOptions& options, std::uint32_t at_once);

PointReport report_of(const PointOptions& options, const Measured& measured, const PointPlace& place,
                      const std::string& command);

}  // namespace flashmob::gpu::evaluation
