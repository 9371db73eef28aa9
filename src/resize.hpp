// What oxygen_ros/embodiment/scaling.py hands over.

#pragma once

// Bytes, red, green and blue somewhere in each pixel; strides in bytes, of any sign. channel_stride: 1 or -1.
struct OxygenPicture {
  const unsigned char* red;
  long height, width, row_stride, pixel_stride, channel_stride;
};

// How each of `length` places comes from `taps` that follow one another, from `first` on, which never steps back.
struct OxygenWeights {
  long length, taps;
  const int *first, *values;  // [length], [length, taps]; the taps' add up to 2^22, but for their rounding
};
