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

PointReport report_of(const PointOptions& options, const Measured& measured, const PointPlace& place,
                      const std::string& command);

}  // namespace flashmob::gpu::evaluation
