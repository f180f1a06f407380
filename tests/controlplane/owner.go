package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"time"
)

// followOwner ends this process when the one that started it is gone.
//
// The owner keeps the writing end of our standard input and never writes to it,
// so its end, even by kill -9, reaches us as end of file. If it left a folder to
// clean up, that folder is removed once the other parts have had time to end too.
func followOwner() {
	if os.Getenv("VLM_FOLLOW_OWNER") == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		if folder := os.Getenv("VLM_REMOVE_WITH_OWNER"); folder != "" {
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				_ = os.RemoveAll(folder)
			}
		}
		os.Exit(1)
	}()
}

// writeSigningKey writes a new key for service account tokens to path.
func writeSigningKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
