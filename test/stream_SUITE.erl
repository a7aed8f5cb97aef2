%% Messages to and from a guest: whole, in order, none lost, and bounded; whatever ends a wait leaves
%% the inbox as it was.
-module(stream_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, mod/2, inst/2, in_process/1, caller/1, calling/1, settled/0]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(MIB, 1048576).
-define(LARGE, (8 * ?MIB)).

%% ---- helpers --------------------------------------------------------------------------------

channel() -> channel(#{}).

channel(Opts) -> inst(channel, with_host(Opts)).

with_host(Opts) -> maps:merge(#{{"env", "host"} => fun(_, []) -> {ok, []} end}, Opts).

call(Inst, Name, Args) ->
    {ok, Results} = wasmtime:call(Inst, atom_to_binary(Name), Args),
    Results.

%% The next message as the guest receives it.
recv(Inst) -> recv(Inst, 65536).

recv(Inst, Cap) ->
    case call(Inst, recv, [1000, Cap]) of
        [Length] when Length >= 0 ->
            {ok, Message} = wasmtime:read_memory(Inst, 1000, Length),
            Message;
        [Other] -> Other
    end.

%% What an instance has streamed to this process, without waiting.
streamed(Inst) -> streamed(wasmtime:ref(Inst), []).

streamed(Ref, Acc) ->
    receive {wasmtime_stream, Ref, Stream, Bytes} -> streamed(Ref, [{Stream, Bytes} | Acc])
    after 0 -> lists:reverse(Acc)
    end.

%% Waits for a message of the instance.
next(Inst) ->
    Ref = wasmtime:ref(Inst),
    receive {wasmtime_stream, Ref, Stream, Bytes} -> {Stream, Bytes}
    after 10_000 -> error({nothing_streamed, wasmtime_test:mailbox()})
    end.

%% Sends, and waits while the inbox is full.
send(Inst, Message) ->
    case wasmtime:send(Inst, Message) of
        ok -> ok;
        ?WASMTIME_ERROR(stream, inbox_full) -> timer:sleep(1), send(Inst, Message)
    end.

number(N) -> <<N:32/little>>.

%% ---- messages to the guest ------------------------------------------------------------------

%% Messages arrive whole and in order, of any iodata; a small buffer is told how much is needed and
%% the message stays.
t_receive(_) ->
    Inst = channel(),
    [ok = wasmtime:send(Inst, Data) || Data <- [<<"one">>, ["t", [<<"w">>, $o]], [], <<"three">>]],
    ?assertEqual(<<"one">>, recv(Inst)),
    ?assertEqual(-2 - 3, recv(Inst, 0)),
    ?assertEqual(-2 - 3, recv(Inst, 2)),
    ?assertEqual(<<"two">>, recv(Inst, 3)),
    ?assertEqual(<<>>, recv(Inst, 0)),
    ?assertEqual(<<"three">>, recv(Inst)),
    ok = wasmtime:destroy(Inst).

%% After the close the guest reads what is there, then the end as often as it asks; nothing more is
%% taken, and closing twice is fine.
t_close(_) ->
    Inst = channel(),
    ok = wasmtime:send(Inst, <<"last">>),
    ok = wasmtime:close(Inst),
    ok = wasmtime:close(Inst),
    ?assertMatch(?WASMTIME_ERROR(stream, closed), wasmtime:send(Inst, <<"more">>)),
    ?assertEqual([<<"last">>, -1, -1], [recv(Inst), recv(Inst), recv(Inst)]),
    ok = wasmtime:destroy(Inst).

%% A message, or the close, ends a wait; the waiting guest holds no scheduler and its call goes on.
t_wait(_) ->
    Inst = channel(),
    [begin
         {Pid, _} = caller(fun() -> recv(Inst) end),
         calling(Pid),
         ok = End(),
         receive {Pid, Got} -> ?assertEqual(Expected, Got) end
     end || {End, Expected} <- [{fun() -> wasmtime:send(Inst, <<"a">>) end, <<"a">>},
                                {fun() -> wasmtime:send(Inst, <<>>) end, <<>>},
                                {fun() -> wasmtime:close(Inst) end, -1}]],
    ok = wasmtime:destroy(Inst).

%% A timeout, an interrupt and the caller's death end a wait. The next one works, and no message is
%% lost to one that ended.
t_wait_is_ended(_) ->
    Inst = channel(),
    Wait = fun(Opts) -> wasmtime:call(Inst, <<"recv">>, [0, 100], Opts) end,
    [begin
         ?assertMatch(?WASMTIME_TRAP(timeout), Wait(#{timeout => 5})),
         {Pid, _} = caller(fun() -> Wait(#{}) end),
         calling(Pid),
         wasmtime_test:wait_until(fun() -> wasmtime:interrupt(Inst) =:= ok end),
         receive {Pid, Result} -> ?assertMatch(?WASMTIME_TRAP(interrupt), Result) end,
         {Dead, Monitor} = caller(fun() -> Wait(#{}) end),
         calling(Dead),
         exit(Dead, kill),
         receive {'DOWN', Monitor, _, _, killed} -> ok end,
         ok = wasmtime:send(Inst, number(N)),
         ?assertEqual(number(N), recv(Inst))
     end || N <- lists:seq(1, 10)],
    ok = wasmtime:destroy(Inst).

%% So does destroy, which frees what was sent; afterwards there is nobody to send to.
t_destroy(_) ->
    Inst = channel(),
    {Pid, _} = caller(fun() -> wasmtime:call(Inst, <<"recv">>, [0, 100]) end),
    calling(Pid),
    ok = wasmtime:destroy(Inst),
    receive {Pid, Result} -> ?assertMatch(?WASMTIME_ERROR(call, destroyed), Result) end,
    Full = channel(),
    ok = wasmtime:send(Full, binary:copy(<<1>>, 10 * ?MIB)),
    ok = wasmtime:destroy(Full),
    [begin
         ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:send(I, <<"x">>)),
         ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:close(I))
     end || I <- [Inst, Full]].

%% Exactly the limit fits. A full inbox refuses and keeps what it has; a message beyond the limit is
%% refused always, and says so.
t_inbox_full(_) ->
    Inst = channel(#{inbox_limit => 10}),
    Full = fun(Message) ->
        {error, #{class := stream, kind := inbox_full, message := Text}} = wasmtime:send(Inst, Message),
        binary:match(Text, <<"never">>) =/= nomatch
    end,
    ?assert(Full(<<"12345678901">>)),
    ok = wasmtime:send(Inst, <<"123456">>),
    ?assertNot(Full(<<"12345">>)),
    ok = wasmtime:send(Inst, <<"abcd">>),
    ?assertNot(Full(<<"x">>)),
    ?assertNot(Full(<<>>)),
    ?assertEqual(<<"123456">>, recv(Inst)),
    ok = wasmtime:send(Inst, <<"ABCDEF">>),
    ?assertNot(Full(<<"x">>)),
    ?assertEqual([<<"abcd">>, <<"ABCDEF">>], [recv(Inst), recv(Inst)]),
    ok = wasmtime:destroy(Inst),
    None = channel(#{inbox_limit => 0}),
    ?assertMatch(?WASMTIME_ERROR(stream, inbox_full), wasmtime:send(None, <<>>)),
    ok = wasmtime:destroy(None).

%% The default limit is 16 MiB, to the byte.
t_default_limit(_) ->
    Inst = channel(),
    Half = binary:copy(<<"x">>, 8 * ?MIB),
    ok = wasmtime:send(Inst, Half),
    ?assertMatch(?WASMTIME_ERROR(stream, inbox_full), wasmtime:send(Inst, [Half, $x])),
    ok = wasmtime:send(Inst, Half),
    ?assertMatch(?WASMTIME_ERROR(stream, inbox_full), wasmtime:send(Inst, <<"x">>)),
    ok = wasmtime:destroy(Inst).

%% What is no iodata is refused; what is no instance is an exception.
t_badarg(_) ->
    Inst = channel(),
    [?assertMatch(?WASMTIME_ERROR(stream, badarg), wasmtime:send(Inst, Data))
     || Data <- [a, 1, {}, [a], [256], [1 | 2], <<1:7>>, [<<1:3>>], #{}]],
    [begin
         ?assertError(badarg, wasmtime:send(Other, <<"x">>)),
         ?assertError(badarg, wasmtime:close(Other))
     end || Other <- [x, make_ref(), {wasmtime_instance}]],
    ok = wasmtime:destroy(Inst).

%% ---- messages from the guest ----------------------------------------------------------------

%% They go to the process that makes the instance, or to the one that is named, with the instance's
%% reference; who prepares a template is not meant.
t_receiver(_) ->
    Send = fun(Inst) ->
        ok = wasmtime:write_memory(Inst, 50, <<"hi">>),
        {ok, []} = wasmtime:call(Inst, <<"send">>, [50, 2])
    end,
    Inst = channel(),
    in_process(fun() -> Send(Inst) end),
    ?assertEqual([{channel, <<"hi">>}], streamed(Inst)),
    ok = wasmtime:destroy(Inst),
    {ok, Template} = in_process(fun() ->
        wasmtime:prepare(mod(channel), wasmtime_test:with_runner(with_host(#{})))
    end),
    {ok, Prepared} = wasmtime:instantiate(Template),
    Send(Prepared),
    ?assertEqual([{channel, <<"hi">>}], streamed(Prepared)),
    ok = wasmtime:destroy(Prepared),
    Self = self(),
    in_process(fun() ->
        Named = channel(#{stream => Self}),
        Send(Named),
        Self ! {named, Named}
    end),
    receive {named, Named} -> ?assertEqual([{channel, <<"hi">>}], streamed(Named)) end.

%% Whatever a call sent is there before its result, in order: nothing comes later.
t_before_the_result(_) ->
    Inst = channel(),
    [begin
         [] = call(Inst, count, [N]),
         ?assertEqual([{channel, number(I)} || I <- lists:seq(0, N - 1)], streamed(Inst)),
         ?assertEqual([], wasmtime_test:mailbox())
     end || N <- [1, 2, 10, 1000] ++ lists:duplicate(wasmtime_test:rounds(50, 200, 2000), 20)],
    ok = wasmtime:destroy(Inst).

%% Also when a third process gets the messages: asked after the result, it has them all.
t_before_the_result_elsewhere(_) ->
    Collector = spawn_link(fun() -> collect([]) end),
    Inst = channel(#{stream => Collector}),
    [begin
         [] = call(Inst, count, [N]),
         Collector ! {give, self()},
         receive {given, Given} -> ?assertEqual([number(I) || I <- lists:seq(0, N - 1)], Given) end
     end || N <- [1, 100] ++ lists:duplicate(wasmtime_test:rounds(50, 200, 2000), 20)],
    ok = wasmtime:destroy(Inst),
    unlink(Collector),
    exit(Collector, kill).

collect(Acc) ->
    receive
        {wasmtime_stream, _, channel, Bytes} -> collect([Bytes | Acc]);
        {give, Pid} -> Pid ! {given, lists:reverse(Acc)}, collect([])
    end.

%% After destroy nothing more comes, wherever the guest was.
t_nothing_after_destroy(_) ->
    [begin
         Inst = channel(),
         {Pid, Monitor} = caller(fun() -> wasmtime:call(Inst, <<"count">>, [-1]) end),
         next(Inst),
         ok = wasmtime:destroy(Inst),
         _ = streamed(Inst),
         receive {Pid, _} -> ok end,
         receive {'DOWN', Monitor, _, _, _} -> ok end,
         ?assertEqual([], wasmtime_test:mailbox())
     end || _ <- lists:seq(1, 20)].

%% While a guest is being made it can send already.
t_start_section(_) ->
    Inst = inst(channel_start, #{}),
    ?assertEqual([{channel, <<"up">>}], streamed(Inst)),
    ok = wasmtime:destroy(Inst).

%% A receiver that is gone loses what is sent to it, and the guest goes on.
t_dead_receiver(_) ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, _, _, _} -> ok end,
    Inst = channel(#{stream => Pid}),
    ?assertEqual([], call(Inst, count, [1000])),
    ok = wasmtime:send(Inst, <<"still">>),
    ?assertEqual(<<"still">>, recv(Inst)),
    ok = wasmtime:destroy(Inst).

%% ---- both ways ------------------------------------------------------------------------------

%% None of 100,000 messages through the guest is lost, and their order stays.
t_echo_100000(_) -> echo(100_000, #{}).

%% Nor with an inbox that is full most of the time.
t_echo_through_a_small_inbox(_) -> echo(wasmtime_test:rounds(2_000, 5_000, 50_000), #{inbox_limit => 64}).

echo(Count, Opts) ->
    Inst = channel(Opts),
    Sender = spawn_link(fun() ->
        [ok = send(Inst, payload(N)) || N <- lists:seq(1, Count)],
        ok = wasmtime:close(Inst)
    end),
    Monitor = monitor(process, Sender),
    ?assertEqual({ok, [Count]}, wasmtime:call(Inst, <<"echo">>, [])),
    receive {'DOWN', Monitor, _, _, normal} -> ok end,
    Ref = wasmtime:ref(Inst),
    [receive {wasmtime_stream, Ref, channel, Bytes} -> ?assertEqual(payload(N), Bytes) end
     || N <- lists:seq(1, Count)],
    ?assertEqual([], wasmtime_test:mailbox()),
    ok = wasmtime:destroy(Inst).

%% Of different sizes.
payload(N) -> <<N:32, 0:(8 * (N rem 40))>>.

%% Many senders: each one's messages keep their order, and none is lost.
t_many_senders(_) ->
    Inst = channel(#{inbox_limit => 10_000}),
    {Senders, Each} = {20, wasmtime_test:rounds(200, 500, 5000)},
    Self = self(),
    spawn_link(fun() ->
        Monitors = [element(2, spawn_monitor(fun() ->
            [ok = send(Inst, <<S:16, N:32>>) || N <- lists:seq(1, Each)]
        end)) || S <- lists:seq(1, Senders)],
        [receive {'DOWN', M, _, _, Reason} -> normal = Reason end || M <- Monitors],
        ok = wasmtime:close(Inst),
        Self ! all_sent
    end),
    ?assertEqual([Senders * Each], call(Inst, echo, [])),
    receive all_sent -> ok end,
    Got = [{S, N} || {channel, <<S:16, N:32>>} <- streamed(Inst)],
    [?assertEqual(lists:seq(1, Each), [N || {S0, N} <- Got, S0 =:= S])
     || S <- lists:seq(1, Senders)],
    ok = wasmtime:destroy(Inst).

%% Megabytes go both ways unharmed.
t_large(_) ->
    Inst = channel(),
    [2] = call(Inst, grow, [200]),
    Large = noise(?LARGE),
    ok = wasmtime:send(Inst, Large),
    [-2 - ?LARGE] =:= call(Inst, recv, [0, ?LARGE - 1]) orelse error(wrong_length),
    ?assertEqual([?LARGE], call(Inst, recv, [3, ?LARGE])),
    ?assertEqual({ok, Large}, wasmtime:read_memory(Inst, 3, ?LARGE)),
    [] = call(Inst, send, [3, ?LARGE]),
    ?assertEqual([{channel, Large}], streamed(Inst)),
    ok = wasmtime:destroy(Inst).

noise(Bytes) ->
    << <<(erlang:phash2(N)):32>> || N <- lists:seq(1, Bytes div 4) >>.

%% A large message whose reading is ended early stays as it was, and one whose sending is ended is
%% not sent: at whatever moment that happens.
t_large_is_whole(_) ->
    Inst = channel(),
    [2] = call(Inst, grow, [200]),
    Received = fun Read(Timeout) ->
        case wasmtime:call(Inst, <<"recv">>, [0, ?LARGE], #{timeout => Timeout}) of
            {ok, [Length]} -> Length;
            ?WASMTIME_TRAP(timeout) -> Read(Timeout + 1)
        end
    end,
    [begin
         ok = wasmtime:send(Inst, binary:copy(<<7>>, ?LARGE)),
         ?assertEqual(?LARGE, Received(0)),
         Sent = case wasmtime:call(Inst, <<"send">>, [0, ?LARGE], #{timeout => Timeout}) of
             {ok, []} -> [?LARGE];
             ?WASMTIME_TRAP(timeout) -> []
         end,
         ?assertEqual(Sent, [byte_size(Bytes) || {channel, Bytes} <- streamed(Inst)])
     end || Timeout <- [0, 1, 2, 3, 4, 5, infinity]],
    ok = wasmtime:destroy(Inst).

%% A host function may send to the instance that waits for it.
t_send_from_a_host_function(_) ->
    Host = fun(Inst, []) -> ok = wasmtime:send(Inst, <<"from the host">>), {ok, []} end,
    Inst = channel(#{{"env", "host"} => Host}),
    ?assertEqual([13], call(Inst, ask_recv, [0, 100])),
    ok = wasmtime:destroy(Inst).

%% And may call it: the call inside waits for a message, and so does the call around it then.
t_nested_wait(_) ->
    Host = fun(Inst, []) ->
        Self = self(),
        spawn_link(fun() -> calling(Self), ok = wasmtime:send(Inst, <<"one">>),
                            ok = wasmtime:send(Inst, <<"four">>) end),
        {ok, [3]} = wasmtime:call(Inst, <<"recv">>, [0, 100]),
        {ok, []}
    end,
    Inst = channel(#{{"env", "host"} => Host}),
    ?assertEqual([4], call(Inst, ask_recv, [0, 100])),
    ok = wasmtime:destroy(Inst).

%% ---- preinit --------------------------------------------------------------------------------

%% An init run streams like any other; what its inbox still held is not part of the snapshot.
t_preinit(_) ->
    Init = fun(Inst) ->
        ok = wasmtime:send(Inst, <<"seen">>),
        ok = wasmtime:send(Inst, <<"left">>),
        {ok, [4]} = wasmtime:call(Inst, <<"recv">>, [0, 100]),
        {ok, []} = wasmtime:call(Inst, <<"send">>, [0, 4]),
        self() ! {ref, wasmtime:ref(Inst)},
        ok
    end,
    {ok, Wasm} = wasmtime_test:preinit(wasmtime_test:source(channel), with_host(#{}), Init),
    receive {ref, Ref} -> ?assertEqual([{channel, <<"seen">>}], streamed(Ref, [])) end,
    Inst = inst(mod(Wasm, #{}), with_host(#{})),
    ?assertEqual({ok, <<"seen">>}, wasmtime:read_memory(Inst, 0, 4)),
    ?assertMatch(?WASMTIME_TRAP(timeout), wasmtime:call(Inst, <<"recv">>, [0, 9], #{timeout => 1})),
    ok = wasmtime:destroy(Inst).
