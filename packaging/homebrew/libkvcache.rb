class Libkvcache < Formula
  desc "Paged KV cache and attention for LLM engines"
  homepage "@HOMEPAGE@"
  url "@RELEASES@/libkvcache-0.1.0.tar.gz"
  sha256 "@SHA256@"
  license all_of: ["Apache-2.0", "BSD-2-Clause"]

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :test
  depends_on :linux

  def install
    # The headers have a folder of their own, because the formula dlpack owns include/dlpack/dlpack.h.
    system "cmake", "-G", "Ninja", "-S", ".", "-B", "build", *std_cmake_args,
           "-DCMAKE_INSTALL_INCLUDEDIR=include/kvcache"
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
    pkgshare.install "examples/guide/c", "examples/guide/output"
  end

  test do
    flags = shell_output("pkgconf --cflags --libs kvcache").chomp.split
    system ENV.cc, "-std=c11", pkgshare/"c/01_hello.c", pkgshare/"c/model.c", *flags, "-Wl,-rpath,#{lib}", "-o", "hello"
    assert_equal (pkgshare/"output/01_hello.txt").read, shell_output("./hello")
  end
end
