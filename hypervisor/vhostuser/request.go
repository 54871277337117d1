package vhostuser

import "strconv"

// request is a front end's message type (QEMU docs/interop/vhost-user.rst,
// "Front-end message types").
type request uint32

const (
	reqGetFeatures         request = 1
	reqSetFeatures         request = 2
	reqSetOwner            request = 3
	reqResetOwner          request = 4
	reqSetMemTable         request = 5
	reqSetLogBase          request = 6
	reqSetLogFD            request = 7
	reqSetVringNum         request = 8
	reqSetVringAddr        request = 9
	reqSetVringBase        request = 10
	reqGetVringBase        request = 11
	reqSetVringKick        request = 12
	reqSetVringCall        request = 13
	reqSetVringErr         request = 14
	reqGetProtocolFeatures request = 15
	reqSetProtocolFeatures request = 16
	reqGetQueueNum         request = 17
	reqSetVringEnable      request = 18
	reqGetConfig           request = 24
	reqSetDeviceStateFD    request = 42
	reqCheckDeviceState    request = 43
)

var requestNames = map[request]string{
	reqGetFeatures:         "GET_FEATURES",
	reqSetFeatures:         "SET_FEATURES",
	reqSetOwner:            "SET_OWNER",
	reqResetOwner:          "RESET_OWNER",
	reqSetMemTable:         "SET_MEM_TABLE",
	reqSetLogBase:          "SET_LOG_BASE",
	reqSetLogFD:            "SET_LOG_FD",
	reqSetVringNum:         "SET_VRING_NUM",
	reqSetVringAddr:        "SET_VRING_ADDR",
	reqSetVringBase:        "SET_VRING_BASE",
	reqGetVringBase:        "GET_VRING_BASE",
	reqSetVringKick:        "SET_VRING_KICK",
	reqSetVringCall:        "SET_VRING_CALL",
	reqSetVringErr:         "SET_VRING_ERR",
	reqGetProtocolFeatures: "GET_PROTOCOL_FEATURES",
	reqSetProtocolFeatures: "SET_PROTOCOL_FEATURES",
	reqGetQueueNum:         "GET_QUEUE_NUM",
	reqSetVringEnable:      "SET_VRING_ENABLE",
	reqGetConfig:           "GET_CONFIG",
	reqSetDeviceStateFD:    "SET_DEVICE_STATE_FD",
	reqCheckDeviceState:    "CHECK_DEVICE_STATE",
}

func (r request) String() string {
	if name, ok := requestNames[r]; ok {
		return name
	}
	return "request " + strconv.FormatUint(uint64(r), 10)
}

// Feature bits (virtio 1.2, section 6; vhost-user.rst, "Feature negotiation").
const (
	// featLogAll is VHOST_F_LOG_ALL. Only a StateKeeper offers it, and its
	// acknowledgement is refused (refuseLog).
	featLogAll           uint64 = 1 << 26
	featIndirectDesc     uint64 = 1 << 28
	featProtocolFeatures uint64 = 1 << 30
	featVersion1         uint64 = 1 << 32

	coreFeatures = featIndirectDesc | featProtocolFeatures | featVersion1
)

// Protocol feature bits (vhost-user.rst, "Protocol features").
const (
	protoMQ          uint64 = 1 << 0
	protoLogShmfd    uint64 = 1 << 1
	protoReplyAck    uint64 = 1 << 3
	protoConfig      uint64 = 1 << 9
	protoDeviceState uint64 = 1 << 19

	protocolFeatures = protoMQ | protoReplyAck | protoConfig
	// keeperFeatures are those of a StateKeeper in addition.
	keeperFeatures = protoLogShmfd | protoDeviceState
)
