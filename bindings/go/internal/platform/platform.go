// Package platform makes a build for another system or CPU fail with one sentence. Package kvcache imports it, and is not
// compiled where it fails.
package platform
