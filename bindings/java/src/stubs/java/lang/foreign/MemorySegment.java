package java.lang.foreign;

/** A name for the compiler, so that signatures can have it when the package is built for Java 17. It is in no jar. */
public interface MemorySegment {}
