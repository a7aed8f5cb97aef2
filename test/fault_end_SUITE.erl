%% Instances end, and hosts misbehave, at the worst moments: destroyed in calls, host calls and start
%% sections, dropped under calls, answered twice, late, by others, or by far too much.
-module(fault_end_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, inst/2, one/1, caller/1]).
-import(fault_test, [moment/0, ended/1, returns/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

repeated(Quick, Normal, Full, Fun) ->
    returns(fun() -> [Fun() || _ <- lists:seq(1, wasmtime_test:rounds(Quick, Normal, Full))], ok end).

loop(Mod, Tick) -> inst(Mod, #{{"env", "tick"} => fun(_, []) -> Tick(), {ok, []} end}).

%% ---- the end of an instance -----------------------------------------------------------------

%% Destroyed at any moment, by several at once: the call that runs and those that wait are told, whatever
%% the guest does. Nobody is told anything else than that, or the result.
t_destroyed_in_calls(_) ->
    Mods = [{mod(loop), <<"spin">>, []}, {mod(loop), <<"tick">>, []}, {mod(host), <<"sum">>, [20]}],
    repeated(50, 500, 5000, fun() ->
        {Mod, Name, Args} = lists:nth(rand:uniform(3), Mods),
        Imports = maps:merge(maps:get(imports, one(fun(_, [X]) -> {ok, [X]} end)),
                             #{{<<"env">>, <<"tick">>} => fun(_, []) -> moment(), {ok, []} end}),
        Inst = inst(Mod, #{imports => Imports}),
        Calls = [spawn_monitor(fun() -> exit(wasmtime:call(Inst, Name, Args)) end) || _ <- [1, 2, 3]],
        moment(),
        Ends = [spawn_monitor(fun() -> exit(wasmtime:destroy(Inst)) end) || _ <- [1, 2]],
        ok = wasmtime:destroy(Inst),
        [?assertEqual(ok, ended(End)) || End <- Ends],
        [told(ended(Call)) || Call <- Calls]
    end).

told(?WASMTIME_ERROR(call, destroyed)) -> ok;
told({ok, [190]}) -> ok.

%% Destroyed by the host function itself, by another process while the host function waits for it, and
%% from a call inside the host call.
t_destroyed_in_host_calls(_) ->
    Mod = mod(host),
    Ways = [fun(Inst) -> ok = wasmtime:destroy(Inst) end,
            fun(Inst) -> ok = wasmtime_test:in_process(fun() -> wasmtime:destroy(Inst) end) end,
            fun(Inst) -> ok = wasmtime:destroy(Inst), ok = wasmtime:destroy(Inst) end],
    repeated(20, 200, 2000, fun() ->
        [begin
             Fun = fun(Inst, [9]) -> {error, #{kind := destroyed}} = wasmtime:call(Inst, <<"one">>, [0]), {ok, [1]};
                      (Inst, [0]) -> Way(Inst), {ok, [1]} end,
             [begin
                  Inst = inst(Mod, one(Fun)),
                  ?assertMatch(?WASMTIME_ERROR(call, destroyed), wasmtime:call(Inst, <<"one">>, [Depth])),
                  ?assertEqual([], wasmtime_test:mailbox())
              end || Depth <- [0, 9]]
         end || Way <- Ways]
    end).

%% Destroyed while it is being made: from the start section's host call, and by another process that got
%% the instance there, while the start section goes on.
t_destroyed_in_start(_) ->
    Mod = mod(start_calls),
    Ways = [fun(Inst) -> ok = wasmtime:destroy(Inst) end,
            fun(Inst) -> ok = wasmtime_test:in_process(fun() -> wasmtime:destroy(Inst) end) end,
            fun(Inst) -> spawn(fun() -> moment(), ok = wasmtime:destroy(Inst) end) end],
    repeated(20, 200, 2000, fun() ->
        [?assertMatch(?WASMTIME_ERROR(call, destroyed),
                      wasmtime_test:instantiate(Mod, #{{"env", "one"} => fun(Inst, [5]) -> Way(Inst), {ok, [1]} end}))
         || Way <- Ways],
        %% Who makes it dies: the start section ends with it.
        Maker = spawn_monitor(fun() -> wasmtime_test:instantiate(Mod, #{{"env", "one"} => fun(_, _) -> {ok, [1]} end}) end),
        moment(),
        exit(element(1, Maker), kill),
        ?assertEqual(killed, ended(Maker))
    end).

%% No handle is left while a call runs: it goes on to its end, the result comes, and then all is freed. A
%% call without end, of which nobody has a handle, ends with its process.
t_dropped_under_calls(_) ->
    Loop = mod(loop),
    repeated(20, 200, 2000, fun() ->
        {Ref, Call} = dropped(Loop),
        [erlang:garbage_collect(Pid) || Pid <- processes()],
        receive {wasmtime_host_call, Ref, HostId, _, []} -> ?assert(is_integer(HostId)) end,
        receive {wasmtime_result, Ref, Call, Result} -> ?assertMatch(?WASMTIME_TRAP(timeout), Result) end,
        Endless = spawn_monitor(fun() ->
            Inst = loop(Loop, fun() -> ok end),
            {ok, _} = wasmtime:call_async(Inst, <<"spin">>, []),
            receive never -> Inst end
        end),
        moment(),
        exit(element(1, Endless), kill),
        ?assertEqual(killed, ended(Endless))
    end).

%% A call that waits for a host call that nobody serves; its instance is not returned.
dropped(Mod) ->
    Inst = loop(Mod, fun() -> ok end),
    {ok, Call} = wasmtime:call_async(Inst, <<"tick_once">>, [], #{timeout => 20}),
    {wasmtime:ref(Inst), Call}.

%% Inside of a host function no handle is used any more, and everything is collected: the call goes on.
t_collected_in_host_calls(_) ->
    Mod = mod(host),
    repeated(10, 100, 1000, fun() ->
        Collect = fun(_, [X]) -> [erlang:garbage_collect(Pid) || Pid <- processes()], {ok, [X]} end,
        ?assertEqual({ok, [3]}, wasmtime:call(inst(Mod, one(Collect)), <<"sum">>, [3]))
    end).

%% ---- hosts ----------------------------------------------------------------------------------

%% A host function that kills its process ends the call and the instance with it; others are served.
t_host_kills_itself(_) ->
    Mod = mod(host),
    repeated(20, 200, 2000, fun() ->
        Inst = inst(Mod, one(fun(_, [0]) -> exit(self(), kill), receive never -> ok end; (_, [X]) -> {ok, [X]} end)),
        Victim = spawn_monitor(fun() -> wasmtime:call(Inst, <<"one">>, [0]) end),
        Other = spawn_monitor(fun() -> exit(wasmtime:call(Inst, <<"one">>, [7])) end),
        ?assertEqual(killed, ended(Victim)),
        ?assertEqual({ok, [7]}, ended(Other)),
        Linked = spawn_monitor(fun() ->
            Pid = self(),
            wasmtime:call(inst(Mod, one(fun(_, _) -> spawn_link(fun() -> exit({took, Pid}) end), receive never -> ok end end)),
                          <<"one">>, [1])
        end),
        ?assertMatch({took, _}, ended(Linked)),
        ok = wasmtime:destroy(Inst)
    end).

%% Only the first answer counts, whoever gives it and however often: also those of other processes, of
%% calls that are over, and of none.
t_answered_by_many(_) ->
    Mod = mod(host),
    repeated(20, 200, 2000, fun() ->
        Inst = inst(Mod, (one(fun(_, [X]) -> {ok, [X * 2]} end))#{host => self()}),
        Caller = spawn_monitor(fun() -> exit(wasmtime:call(Inst, <<"sum">>, [3])) end),
        Messages = [receive {wasmtime_host_call, _, _, _, [N]} = Message -> answer(Inst, Message), Message end
                    || N <- [0, 1, 2]],
        ?assertEqual({ok, [6]}, ended(Caller)),
        [answer(Inst, Message) || Message <- Messages],
        ?assertEqual({ok, [4]}, wasmtime:call(Inst, <<"one">>, [2])),
        ?assertEqual([], wasmtime_test:mailbox()),
        ok = wasmtime:destroy(Inst),
        [answer(Inst, Message) || Message <- Messages]
    end).

%% Two answers before the guest goes on: the first is the one that counts.
t_the_first_answer_counts(_) ->
    Inst = inst(mod(host), (one(fun(_, [_]) -> {ok, [get(answer)]} end))#{host => self()}),
    [begin
         Caller = {Pid, _} = spawn_monitor(fun() -> exit(wasmtime:call(Inst, <<"one">>, [7])) end),
         Message = receive {wasmtime_host_call, _, _, _, [7]} = Asked -> Asked end,
         true = erlang:suspend_process(Pid),
         [begin put(answer, Answer), ok = wasmtime:handle_host_call(Inst, Message) end
          || Answer <- [First, 1000, 2000]],
         true = erlang:resume_process(Pid),
         ?assertEqual({ok, [First]}, ended(Caller))
     end || First <- lists:seq(1, 20)],
    ok = wasmtime:destroy(Inst).

%% Several at once, twice each.
answer(Inst, Message) ->
    Serve = fun() -> exit([wasmtime:handle_host_call(Inst, Message) || _ <- [1, 2]]) end,
    [?assertEqual([ok, ok], ended(Pid)) || Pid <- [spawn_monitor(Serve) || _ <- [1, 2, 3]]].

%% Ten megabytes, a million values and other heaps of what was not asked for are one host error each, with
%% a short message; the instance lives on.
t_huge_answers(_) ->
    Big = binary:copy(<<"x">>, 10 * 1024 * 1024),
    Long = lists:seq(1, 1_000_000),
    Answers = [{ok, [Big]}, {ok, Long}, {ok, [Long]}, {ok, [Big | 1]}, {ok, Big}, {error, Big}, {error, Long},
               {error, {Big, Long}}, Big, Long, {ok, [1 bsl 1_000_000]}, {error, <<"x", (binary:copy(<<"é"/utf8>>, 5_000_000))/binary>>}, {ok, [list_to_tuple(Long)]},
               {ok, [maps:from_list([{N, N} || N <- lists:seq(1, 100_000)])]}],
    %% Where they are not copied to each process.
    persistent_term:put(?MODULE, list_to_tuple(Answers)),
    Answer = fun(_, [0]) -> {ok, [7]}; (_, [N]) -> element(N, persistent_term:get(?MODULE)) end,
    Last = length(Answers),
    returns(fun() ->
        Inst = inst(mod(host), one(Answer)),
        [begin
             {error, #{class := host, kind := host_error, message := Message}} = wasmtime:call(Inst, <<"one">>, [N]),
             ?assert(byte_size(Message) < 1500),
             ?assertNotMatch({_, _}, is_text(N) andalso binary:match(Message, <<"<<">>)),
             ?assertEqual({ok, [7]}, wasmtime:call(Inst, <<"one">>, [0]))
         end || N <- lists:seq(1, Last)],
        ok = wasmtime:destroy(Inst)
    end),
    true = persistent_term:erase(?MODULE).

%% Those whose reason is text, which is shown as such.
is_text(N) ->
    case element(N, persistent_term:get(?MODULE)) of
        {error, Text} -> is_binary(Text);
        _ -> false
    end.

%% As much as that may be a value where a reference to a term is asked for, and comes back whole.
t_huge_terms(_) ->
    Big = {binary:copy(<<"x">>, 10 * 1024 * 1024), lists:seq(1, 1_000_000)},
    returns(fun() ->
        reference_SUITE:with_refs(fun(Inst) ->
            {ok, Ref} = wasmtime:externref(Inst, Big),
            {ok, [Back]} = wasmtime:call(Inst, <<"extern">>, [Ref]),
            ?assertEqual({ok, Big}, wasmtime:externref_data(Back))
        end)
    end).
