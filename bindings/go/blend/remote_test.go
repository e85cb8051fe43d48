package blend_test

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"libblend.io/go/blend"
)

// redis starts a server with the password "sesame" and gives its URL.
func redis(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	free := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := free.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	free.Close()
	server := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "",
		"--requirepass", "sesame")
	ok(t, server.Start())
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
	})
	for i := 0; i < 200; i++ {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Sprintf("redis://%s", address)
}

func TestRemote(t *testing.T) {
	url := redis(t)
	folder := t.TempDir()
	open := func(name string, options blend.StoreOptions) *blend.Store {
		options.Remote = url
		options.RemoteTimeoutMs = 20000
		return openStore(t, filepath.Join(folder, name), &options)
	}
	before := must(blend.OpenStore(ctx, filepath.Join(folder, "first"), nil))(t)
	ids := chunksOf(t, before)
	ok(t, before.Close())

	first := open("first", blend.StoreOptions{RemotePassword: "sesame"})
	ok(t, first.RemoteCheck())
	if n := must(first.RemotePush(bg, &blend.TransferOptions{IDs: ids[:1]}))(t); n != 1 {
		t.Errorf("%d pushed", n)
	}
	if n := must(first.RemotePush(bg, nil))(t); n != len(ids)-1 {
		t.Errorf("%d pushed", n)
	}
	second := open("second", blend.StoreOptions{RemotePassword: "sesame"})
	if n := must(second.RemotePull(bg, nil))(t); n != len(ids) {
		t.Errorf("%d pulled", n)
	}
	found := must(second.RemoteVerify(bg, nil))(t)
	if len(found) != len(ids) {
		t.Errorf("%+v", found)
	}
	for _, c := range found {
		if len(c.ID) != 64 || c.Problem != "" {
			t.Errorf("%+v", c)
		}
	}
	ok(t, second.RemoteRemove(ids[0]))
	wantError(t, second.RemoteRemove(ids[0]), blend.ErrNotFound)
	if _, err := first.RemotePush(bg, &blend.TransferOptions{Progress: func(int64, int64) error { return errMine }}); err != errMine {
		t.Error(err)
	}

	wantError(t, open("stranger", blend.StoreOptions{RemotePassword: "guessed"}).RemoteCheck(), blend.ErrIO)
	t.Setenv("BLEND_REMOTE_PASSWORD", "sesame")
	ok(t, open("environment", blend.StoreOptions{}).RemoteCheck())
	sealed := open("sealed", blend.StoreOptions{RemotePassword: "sesame", RemoteSealKey: make([]byte, 32)})
	if found := must(sealed.RemoteVerify(bg, nil))(t); len(found) != 0 {
		t.Errorf("another key shows %+v", found)
	}
	_, err := blend.OpenStore(ctx, filepath.Join(folder, "short"), &blend.StoreOptions{Remote: url, RemoteSealKey: make([]byte, 3)})
	wantError(t, err, blend.ErrInvalidArgument)
	alone := openStore(t, filepath.Join(folder, "alone"), nil)
	wantError(t, alone.RemoteCheck(), blend.ErrInvalidArgument)
	_, err = alone.RemotePull(bg, nil)
	wantError(t, err, blend.ErrInvalidArgument)
}
