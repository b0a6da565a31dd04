package supervise

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports below the range from which Linux takes ports for outgoing connections, so that none of those takes one of these
// between the choice and the start of its component.
const lowestPort, highestPort = 11000, 32000

// freePorts chooses n different loopback ports nobody listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 50 * n {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer func() { _ = listener.Close() }() // only now: no port is chosen twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("found no %d free loopback ports between %d and %d", n, lowestPort, highestPort)
}
