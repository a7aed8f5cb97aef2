%% Standard streams that are streamed: what is sent is standard input, what the guest writes arrives
%% at once, and whatever ends a blocked read loses no byte.
-module(stdin_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [inst/2, caller/1, calling/1]).
-import(stream_SUITE, [streamed/1, send/2]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(STREAMS, #{stdin => stream, stdout => stream, stderr => stream}).
%% Where the guest reads to.
-define(AT, 70000).
%% File types and rights of fd_fdstat_get.
-define(UNKNOWN, 0).
-define(CHARACTER_DEVICE, 2).
-define(FD_READ, 2).
-define(FD_WRITE, 64).

stdio() -> stdio(?STREAMS, #{}).

stdio(Wasi, Opts) -> inst(stdio, Opts#{wasi => Wasi}).

%% One read of the guest, as its C library does it.
read(Inst, Most) ->
    {ok, [Length]} = wasmtime:call(Inst, <<"read">>, [?AT, Most]),
    {ok, Bytes} = wasmtime:read_memory(Inst, ?AT, Length),
    Bytes.

%% ---- input ----------------------------------------------------------------------------------

%% What is sent is one stream of bytes: reads see no messages, and an empty one is no end.
t_read(_) ->
    Inst = stdio(),
    [ok = wasmtime:send(Inst, Data) || Data <- [<<"abc">>, [], ["de", <<"f">>], <<>>, <<"g">>]],
    ?assertEqual(<<"a">>, read(Inst, 1)),
    ?assertEqual(<<"bcde">>, read(Inst, 4)),
    ?assertEqual(<<"fg">>, read(Inst, 100)),
    ok = wasmtime:send(Inst, <<>>),
    ok = wasmtime:send(Inst, <<"h">>),
    ?assertEqual(<<"h">>, read(Inst, 100)),
    ok = wasmtime:destroy(Inst).

%% The close is the end of the file, after what was sent, and stays it.
t_end_of_file(_) ->
    Inst = stdio(),
    ok = wasmtime:send(Inst, <<"last">>),
    ok = wasmtime:close(Inst),
    ?assertEqual([<<"last">>, <<>>, <<>>], [read(Inst, 100), read(Inst, 100), read(Inst, 100)]),
    ?assertMatch(?WASMTIME_ERROR(stream, closed), wasmtime:send(Inst, <<"more">>)),
    ok = wasmtime:destroy(Inst).

%% So are any number of empty ones, before, between and after bytes.
t_many_empty(_) ->
    Inst = stdio(),
    Empty = fun(N) -> [ok = wasmtime:send(Inst, <<>>) || _ <- lists:seq(1, N)] end,
    Empty(100_000),
    ok = wasmtime:send(Inst, <<"ab">>),
    Empty(1),
    ok = wasmtime:send(Inst, <<"c">>),
    Empty(100_000),
    ?assertEqual(<<"a">>, read(Inst, 1)),
    ?assertEqual(<<"bc">>, read(Inst, 100)),
    Empty(100_000),
    ok = wasmtime:close(Inst),
    ?assertEqual(<<>>, read(Inst, 100)),
    ok = wasmtime:destroy(Inst).

%% A blocked read is ended by bytes and by the close, but not by an empty message.
t_blocked(_) ->
    Inst = stdio(),
    Read = fun() -> {Pid, _} = caller(fun() -> read(Inst, 100) end), calling(Pid), Pid end,
    First = Read(),
    ok = wasmtime:send(Inst, <<>>),
    ok = wasmtime:send(Inst, <<"bytes">>),
    receive {First, Bytes} -> ?assertEqual(<<"bytes">>, Bytes) end,
    Second = Read(),
    ok = wasmtime:close(Inst),
    receive {Second, End} -> ?assertEqual(<<>>, End) end,
    ok = wasmtime:destroy(Inst).

%% A timeout, an interrupt and the caller's death end a blocked read. Standard input works again
%% afterwards, and no byte is lost, also when it arrives as the read ends.
t_blocked_is_ended(_) ->
    Inst = stdio(),
    Read = fun(Opts) -> wasmtime:call(Inst, <<"read">>, [?AT, 100], Opts) end,
    [begin
         ?assertMatch(?WASMTIME_TRAP(timeout), Read(#{timeout => 5})),
         {Pid, _} = caller(fun() -> Read(#{}) end),
         calling(Pid),
         wasmtime_test:wait_until(fun() -> wasmtime:interrupt(Inst) =:= ok end),
         receive {Pid, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end,
         {Dead, Monitor} = caller(fun() -> Read(#{}) end),
         calling(Dead),
         exit(Dead, kill),
         receive {'DOWN', Monitor, _, _, killed} -> ok end,
         ok = wasmtime:send(Inst, <<N>>),
         ?assertEqual(<<N>>, read(Inst, 100))
     end || N <- lists:seq(1, 10)],
    ok = wasmtime:destroy(Inst).

t_bytes_race_with_ends(_) ->
    Inst = stdio(),
    Count = wasmtime_test:rounds(200, 500, 5000),
    spawn_link(fun() -> [ok = wasmtime:send(Inst, <<N:32>>) || N <- lists:seq(1, Count)] end),
    Got = racing(Inst, 4 * Count, []),
    ?assertEqual(<< <<N:32>> || N <- lists:seq(1, Count) >>, iolist_to_binary(Got)),
    ok = wasmtime:destroy(Inst).

racing(_, 0, Acc) -> lists:reverse(Acc);
racing(Inst, Left, Acc) ->
    case wasmtime:call(Inst, <<"read">>, [?AT, 7], #{timeout => Left rem 2}) of
        {ok, [Length]} ->
            {ok, Bytes} = wasmtime:read_memory(Inst, ?AT, Length),
            racing(Inst, Left - Length, [Bytes | Acc]);
        ?WASMTIME_TRAP(timeout) ->
            racing(Inst, Left, Acc)
    end.

%% Destroy ends a blocked read too.
t_destroyed(_) ->
    Inst = stdio(),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"read">>, [?AT, 100]) end),
    calling(Pid),
    ok = wasmtime:destroy(Inst),
    receive {Pid, Result} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), Result) end,
    ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:send(Inst, <<"x">>)).

%% Much more than the inbox holds goes through, for a sender that waits when it is full.
t_through_a_small_inbox(_) ->
    Inst = stdio(?STREAMS, #{inbox_limit => 5000}),
    Data = stream_SUITE:noise(wasmtime_test:rounds(400_000, 1_000_000, 10_000_000)),
    spawn_link(fun() -> feed(Inst, Data), ok = wasmtime:close(Inst) end),
    ?assertEqual({ok, [byte_size(Data)]}, wasmtime:call(Inst, <<"cat">>, [])),
    ?assert(Data =:= iolist_to_binary([Bytes || {stdout, Bytes} <- streamed(Inst)])),
    ok = wasmtime:destroy(Inst).

feed(Inst, <<Bytes:999/binary, Rest/binary>>) -> send(Inst, Bytes), feed(Inst, Rest);
feed(Inst, Bytes) -> send(Inst, Bytes).

%% `erlang.recv' takes from the same inbox: what standard input has not.
t_messages_and_bytes(_) ->
    Inst = stdio(),
    [ok = wasmtime:send(Inst, Data) || Data <- [<<"one">>, <<"two">>, <<"three">>]],
    ?assertEqual(<<"onet">>, read(Inst, 4)),
    ?assertEqual({ok, [-4]}, wasmtime:call(Inst, <<"recv">>, [?AT, 1])),
    ?assertEqual({ok, [2]}, wasmtime:call(Inst, <<"recv">>, [?AT, 100])),
    ?assertEqual({ok, <<"wo">>}, wasmtime:read_memory(Inst, ?AT, 2)),
    ?assertEqual(<<"three">>, read(Inst, 100)),
    ok = wasmtime:destroy(Inst).

%% Without `stdin => stream' the messages are no input.
t_other_input(_) ->
    Inst = stdio(#{stdin => {binary, <<"given">>}}, #{}),
    ok = wasmtime:send(Inst, <<"sent">>),
    ?assertEqual([<<"given">>, <<>>], [read(Inst, 100), read(Inst, 100)]),
    ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"recv">>, [?AT, 100])),
    ok = wasmtime:destroy(Inst).

%% ---- poll_oneoff ----------------------------------------------------------------------------

-define(NEVER, 3600_000_000_000).

%% Waits for standard input, at most so many nanoseconds: what happened.
poll(Inst, Nanoseconds) -> poll(Inst, Nanoseconds, #{}).

poll(Inst, Nanoseconds, Opts) ->
    Clock = <<1:64/little, 0, 0:56, 1:32/little, 0:32, Nanoseconds:64/little, 0:64, 0:64>>,
    Stdin = <<2:64/little, 1, 0:56, 0:32, 0:224>>,
    ok = wasmtime:write_memory(Inst, 4096, [Clock, Stdin]),
    case wasmtime:call(Inst, <<"poll_oneoff">>, [4096, 8192, 2, 512], Opts) of
        {ok, [0]} ->
            {ok, <<Count:32/little>>} = wasmtime:read_memory(Inst, 512, 4),
            {ok, Events} = wasmtime:read_memory(Inst, 8192, 32 * Count),
            [case UserData of 1 -> clock; 2 -> stdin end
             || <<UserData:64/little, 0:16, _:176>> <= Events];
        Error -> Error
    end.

%% A guest that polls sees bytes, no bytes, and the end; a message wakes it, and what it sees stays.
t_poll(_) ->
    Inst = inst(wasi, #{wasi => ?STREAMS}),
    ?assertEqual([clock], poll(Inst, 1000)),
    ok = wasmtime:send(Inst, <<>>),
    ?assertEqual([clock], poll(Inst, 1000)),
    {Pid, _} = caller(fun() -> poll(Inst, ?NEVER) end),
    calling(Pid),
    ok = wasmtime:send(Inst, <<"x">>),
    receive {Pid, Happened} -> ?assertEqual([stdin], Happened) end,
    ?assertEqual([stdin], poll(Inst, ?NEVER)),
    ?assertEqual({ok, <<"x">>}, wasi_SUITE:fd_read(Inst, 0, 10)),
    ?assertEqual([clock], poll(Inst, 1000)),
    ?assertMatch(?WASMTIME_TRAP(timeout), poll(Inst, ?NEVER, #{timeout => 5})),
    ok = wasmtime:close(Inst),
    ?assertEqual([stdin], poll(Inst, ?NEVER)),
    ok = wasmtime:destroy(Inst).

%% ---- output ---------------------------------------------------------------------------------

%% A streamed output is a terminal to the guest's C library, which then writes line by line: a
%% character device without the rights to seek and tell. Standard input is none: nobody types.
t_terminal(_) ->
    Stat = fun(Wasi, Fd) ->
        Inst = inst(wasi, #{wasi => Wasi}),
        {ok, [0]} = wasmtime:call(Inst, <<"fd_fdstat_get">>, [Fd, 512]),
        {ok, <<Type, _, _:16, _:32, Rights:64/little, _/binary>>} =
            wasmtime:read_memory(Inst, 512, 24),
        ok = wasmtime:destroy(Inst),
        {Type, Rights}
    end,
    [?assertEqual({?CHARACTER_DEVICE, ?FD_WRITE}, Stat(?STREAMS, Fd)) || Fd <- [1, 2]],
    ?assertEqual({?UNKNOWN, ?FD_READ}, Stat(?STREAMS, 0)),
    [?assertEqual({?UNKNOWN, ?FD_WRITE}, Stat(#{stdout => Out, stderr => Out}, Fd))
     || Fd <- [1, 2], Out <- [none, capture]].

%% What the guest writes is there while it goes on: here it waits for the answer.
t_at_once(_) ->
    Inst = stdio(),
    Self = self(),
    Ref = wasmtime:ref(Inst),
    spawn_link(fun() -> Self ! {done, wasmtime:call(Inst, <<"prompt">>, [])} end),
    receive {wasmtime_stream, Ref, stdout, Bytes} -> ?assertEqual(<<"name?\n">>, Bytes) end,
    ok = wasmtime:send(Inst, <<"ada\n">>),
    receive {done, Result} -> ?assertEqual({ok, [4]}, Result) end,
    ?assertEqual({ok, <<"ada\n">>}, wasmtime:read_memory(Inst, 2048, 4)),
    ok = wasmtime:destroy(Inst).

%% The order of both outputs is that of the writes, and all is there before the result.
t_order(_) ->
    Inst = stdio(),
    [begin
         {ok, []} = wasmtime:call(Inst, <<"both">>, [N]),
         ?assertEqual([{Stream, <<I>>} || I <- lists:seq(N, 1, -1), Stream <- [stdout, stderr]],
                      streamed(Inst))
     end || N <- [1, 255 | lists:duplicate(wasmtime_test:rounds(50, 200, 1000), 10)]],
    ok = wasmtime:destroy(Inst).

%% One stream may be streamed and the other not.
t_one_of_both(_) ->
    Inst = stdio(#{stdout => stream, stderr => capture}, #{}),
    {ok, []} = wasmtime:call(Inst, <<"both">>, [2]),
    ?assertEqual([{stdout, <<2>>}, {stdout, <<1>>}], streamed(Inst)),
    ?assertEqual({ok, {<<>>, <<2, 1>>, {0, 0}}}, wasmtime:read_output(Inst)),
    ok = wasmtime:destroy(Inst).

%% Templates serve many instances, each with input and output of its own.
t_prepared(_) ->
    Opts = wasmtime_test:with_runner(#{wasi => ?STREAMS}),
    {ok, Template} = wasmtime:prepare(wasmtime_test:mod(stdio), Opts),
    Insts = [begin {ok, Inst} = wasmtime:instantiate(Template), Inst end || _ <- [1, 2, 3]],
    [ok = wasmtime:send(Inst, integer_to_binary(N)) || {N, Inst} <- lists:enumerate(Insts)],
    [{ok, [1]} = wasmtime:call(Inst, <<"prompt">>, []) || Inst <- Insts],
    [begin
         ?assertEqual({ok, integer_to_binary(N)}, wasmtime:read_memory(Inst, 2048, 1)),
         ?assertEqual([{stdout, <<"name?\n">>}], streamed(Inst)),
         ok = wasmtime:destroy(Inst)
     end || {N, Inst} <- lists:enumerate(Insts)].

%% A receiver that is gone loses the output, and the guest goes on.
t_dead_receiver(_) ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, _, _, _} -> ok end,
    Inst = stdio(?STREAMS, #{stream => Pid}),
    ?assertEqual({ok, []}, wasmtime:call(Inst, <<"both">>, [100])),
    ?assertEqual([], wasmtime_test:mailbox()),
    ok = wasmtime:destroy(Inst).
