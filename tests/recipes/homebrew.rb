# Runs a formula without Homebrew: `install`, then `test`, with those parts of Homebrew's class Formula that this formula uses.
#   ruby homebrew.rb FORMULA EMPTY_FOLDER [CMAKE_OPTION ...]
# The package is then in EMPTY_FOLDER/prefix.
require "digest"
require "fileutils"
require "pathname"
require "uri"

PLACE = Pathname(ARGV[1]).expand_path
OPTIONS = ARGV.drop(2)

class Pathname
  def install(*names)
    mkpath
    FileUtils.cp_r(names, self)
  end
end

class Formula
  class << self
    attr_reader :values, :test_block

    %i[desc homepage url sha256 license].each do |word|
      define_method(word) do |value|
        @values ||= {}
        @values[word] = value
      end
    end

    def depends_on(_dependency) = nil

    def test(&block) = @test_block = block
  end

  def prefix = PLACE/"prefix"
  def lib = prefix/"lib"
  def pkgshare = prefix/"share/libkvcache"

  def std_cmake_args
    ["-DCMAKE_INSTALL_PREFIX=#{prefix}", "-DCMAKE_INSTALL_LIBDIR=lib", "-DCMAKE_BUILD_TYPE=Release", *OPTIONS]
  end

  def system(*words)
    Kernel.system(*words.map(&:to_s)) or raise "failed: #{words.join(" ")}"
  end

  def shell_output(command)
    output = `#{command.sub("pkgconf", "pkg-config")}` # the name in Debian 12
    raise "failed: #{command}" unless $?.success?

    output
  end

  def assert_equal(expected, actual)
    raise "expected #{expected.inspect}, not #{actual.inspect}" unless expected == actual
  end
end

def ENV.cc = "gcc"

def unpack(values)
  archive = URI(values.fetch(:url)).path
  raise "another sha256" unless Digest::SHA256.file(archive).hexdigest == values.fetch(:sha256)

  source = PLACE/"source"
  source.mkpath
  system("tar", "-xf", archive, "-C", source.to_s, "--strip-components", "1") or raise "cannot unpack #{archive}"
  source
end

load ARGV[0]
formula = ObjectSpace.each_object(Class).find { |type| type < Formula }
missing = %i[desc homepage url sha256 license] - formula.values.keys
raise "no #{missing.join(", ")}" unless missing.empty?

made = formula.new
Dir.chdir(unpack(formula.values)) { made.install }
ENV["PKG_CONFIG_PATH"] = (made.lib/"pkgconfig").to_s
(PLACE/"test").mkpath
Dir.chdir(PLACE/"test") { made.instance_eval(&formula.test_block) }
puts "#{formula.name}: installed, and its test passes"
