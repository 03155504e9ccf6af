package dev.kvcache;

import java.nio.ByteBuffer;

/** A struct or an array in memory that C reads: fields by their offset in bytes. */
final class Mem {
  final ByteBuffer buffer;
  final int at;
  final long address;

  Mem(ByteBuffer buffer, int at, long base) {
    this.buffer = buffer;
    this.at = at;
    this.address = base + at;
  }

  void putInt(int offset, int value) {
    buffer.putInt(at + offset, value);
  }

  void putLong(int offset, long value) {
    buffer.putLong(at + offset, value);
  }

  void putDouble(int offset, double value) {
    buffer.putDouble(at + offset, value);
  }

  int getInt(int offset) {
    return buffer.getInt(at + offset);
  }

  long getLong(int offset) {
    return buffer.getLong(at + offset);
  }
}
