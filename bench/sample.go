// The sample plugin in Go, and a client and a server for the tests: gRPC for Go on Unix sockets, with messages as
// bytes. What client and server saw goes to stdout.
package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

const (
	service  = "v1beta1.DevicePlugin"
	resource = "bench.devplug.io/sample"
	devices  = 8
)

// asIs takes the place of protobuf, on both ends.
type asIs struct{}

func (asIs) Name() string { return "proto" }

func (asIs) Marshal(message interface{}) ([]byte, error) { return message.([]byte), nil }

func (asIs) Unmarshal(content []byte, message interface{}) error {
	*message.(*[]byte) = append([]byte(nil), content...)
	return nil
}

func main() {
	encoding.RegisterCodec(asIs{})
	switch role, path := os.Args[1], os.Args[2]; role {
	case "call":
		call(path, unhex(os.Args[3]))
	case "serve":
		serve(path, fixed(unhex(os.Args[3])), func() { fmt.Println("up") })
	case "plugin":
		serve(filepath.Join(path, "sample.sock"), plugin{}, func() { register(path) })
	default:
		log.Fatalf("no role %q", role)
	}
}

// ── a server, and what it may serve ──

type server interface {
	options(request []byte) ([]byte, error)
	allocate(request []byte) ([]byte, error)
	list() []byte
}

func serve(path string, served server, up func()) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	grpcServer := grpc.NewServer()
	grpcServer.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*interface{})(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "GetDevicePluginOptions", Handler: unary(served.options)},
			{MethodName: "Allocate", Handler: unary(served.allocate)},
		},
		Streams: []grpc.StreamDesc{{
			StreamName:    "ListAndWatch",
			ServerStreams: true,
			Handler: func(_ interface{}, stream grpc.ServerStream) error {
				var request []byte
				if err := stream.RecvMsg(&request); err != nil {
					return err
				}
				if err := stream.SendMsg(served.list()); err != nil {
					return err
				}
				<-stream.Context().Done()
				return nil
			},
		}},
	}, struct{}{})
	go up()
	log.Fatal(grpcServer.Serve(listener))
}

type unaryHandler = func(interface{}, context.Context, func(interface{}) error, grpc.UnaryServerInterceptor) (interface{}, error)

func unary(answer func([]byte) ([]byte, error)) unaryHandler {
	return func(_ interface{}, _ context.Context, decode func(interface{}) error, _ grpc.UnaryServerInterceptor) (interface{}, error) {
		var request []byte
		if err := decode(&request); err != nil {
			return nil, err
		}
		return answer(request)
	}
}

// fixed answers everything with the same bytes, but an empty Allocate.
type fixed []byte

func (answer fixed) options([]byte) ([]byte, error) { return answer, nil }

func (answer fixed) list() []byte { return answer }

func (answer fixed) allocate(request []byte) ([]byte, error) {
	if len(request) == 0 {
		return nil, status.Error(codes.NotFound, "nothing é")
	}
	return answer, nil
}

// plugin lists eight devices for good, and gives out the first of the request as a device node.
type plugin struct{}

func (plugin) options([]byte) ([]byte, error) { return nil, nil }

func (plugin) list() []byte {
	var listed []byte
	for number := 0; number < devices; number++ {
		listed = append(listed, field(1, field(1, []byte(fmt.Sprintf("node%d", number))), field(2, []byte("Healthy")))...)
	}
	return listed
}

func (plugin) allocate(request []byte) ([]byte, error) {
	id := first(first(request))
	path := append([]byte("/dev/"), id...)
	return field(1, field(3, field(1, path), field(2, path), field(3, []byte("rw")))), nil
}

func register(folder string) {
	connection := dial(filepath.Join(folder, "kubelet.sock"))
	defer connection.Close()
	request := append(append(field(1, []byte("v1beta1")), field(2, []byte("sample.sock"))...), field(3, []byte(resource))...)
	var answer []byte
	if err := connection.Invoke(context.Background(), "/v1beta1.Registration/Register", request, &answer); err != nil {
		log.Fatal(err)
	}
}

// ── a client ──

func dial(path string) *grpc.ClientConn {
	connection, err := grpc.Dial(path, grpc.WithInsecure(), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

func call(path string, request []byte) {
	connection := dial(path)
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var answer, nothing, list []byte
	err := connection.Invoke(ctx, "/"+service+"/Allocate", request, &answer)
	refusal := status.Convert(connection.Invoke(ctx, "/"+service+"/Nope", nothing, &nothing))
	stream, streamErr := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/ListAndWatch")
	for _, step := range []func() error{
		func() error { return streamErr },
		func() error { return stream.SendMsg([]byte{}) },
		func() error { return stream.CloseSend() },
		func() error { return stream.RecvMsg(&list) },
	} {
		if failure := step(); failure != nil {
			log.Fatal(failure)
		}
	}
	seen, _ := json.Marshal(map[string]interface{}{
		"error":  err,
		"answer": hex.EncodeToString(answer),
		"nope":   []interface{}{refusal.Code(), refusal.Message()},
		"size":   len(list),
	})
	fmt.Println(string(seen))
}

// ── protobuf, as much as these messages need ──

// field is one field of type bytes, of the parts one after the other.
func field(number byte, parts ...[]byte) []byte {
	var content []byte
	for _, part := range parts {
		content = append(content, part...)
	}
	var length [binary.MaxVarintLen64]byte
	size := binary.PutUvarint(length[:], uint64(len(content)))
	return append(append([]byte{number<<3 | 2}, length[:size]...), content...)
}

// first is the content of a message's first field, which is of type bytes.
func first(message []byte) []byte {
	if len(message) == 0 {
		return nil
	}
	length, size := binary.Uvarint(message[1:])
	return message[1+size : 1+size+int(length)]
}

func unhex(text string) []byte {
	content, err := hex.DecodeString(text)
	if err != nil {
		log.Fatal(err)
	}
	return content
}
