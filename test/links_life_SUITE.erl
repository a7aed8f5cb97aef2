%% Instances of several modules over their life: start sections, limits, pools, and that nothing of any
%% module is left.
-module(links_life_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1, mod/2, inst/2, instantiate/2, in_process/1, wait_until/1]).
-import(links_SUITE, [main/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

-define(PAGE, 65536).

%% ---- start sections -------------------------------------------------------------------------

%% They run in order, may call the host and wait for it, and what they left is there: an import may
%% ask for the size that a memory grew to. The pool's slots are handed to each in turn meanwhile.
t_start(_) ->
    Main = "(module (import \"a\" \"memory\" (memory 3)) (import \"b\" \"log\" (func $log (param i32)))"
           " (import \"env\" \"one\" (func $one (param i32) (result i32)))"
           " (memory $own (export \"own\") 1) (data (memory $own) (i32.const 0) \"own\")"
           " (export \"a\" (memory 0)) (func $s (call $log (call $one (i32.const 9)))) (start $s))",
    Self = self(),
    One = fun(_, [X]) -> Self ! {one, X}, timer:sleep(5), {ok, [X + 10]} end,
    [begin
         Link = mod(link_start, Compile),
         Inst = inst(mod({wat, Main}, Compile), #{links => [{"a", Link}, {"b", Link}], {"env", "one"} => One}),
         ?assertEqual([1, 1, 9], [receive {one, X} -> X end || _ <- [1, 2, 3]]),
         ?assertEqual({ok, <<11, 0>>}, wasmtime:read_memory(Inst, "a", 0, 2)),
         ?assertEqual({ok, <<"own", 0>>}, wasmtime:read_memory(Inst, "own", 0, 4)),
         ok = wasmtime:destroy(Inst)
     end || Compile <- [#{}, wasmtime_test:pool(#{core_instances => 3})], _ <- lists:seq(1, 3)].

%% What ends the start of a link ends the instantiation, as that of the main module does.
t_start_fails(_) ->
    Main = mod({wat, "(module (memory 1))"}),
    New = fun(Link, Opts) -> instantiate(Main, Opts#{links => [{"x", mod(link_base)}, {"l", Link}]}) end,
    {error, #{class := trap, kind := unreachable, trace := [_ | _]}} = New(mod(start_trap), #{}),
    ?assertMatch(?WASMTIME_ERROR(host, host_error),
                 New(mod(link_start), #{{"env", "one"} => fun(_, _) -> error(oops) end})),
    ?assertMatch(?WASMTIME_ERROR(host, host_timeout),
                 New(mod(link_start), #{host_timeout => 10,
                                        {"env", "one"} => fun(_, _) -> timer:sleep(200), {ok, [1]} end})),
    ?assertMatch(?WASMTIME_TRAP(memory_out_of_bounds), New(mod(segment_trap), #{})).

%% ---- limits and pools -----------------------------------------------------------------------

%% Limits count what all modules have together.
t_limits(_) ->
    {Mod, Opts} = main(#{}),
    [begin
         {ok, Inst} = instantiate(Mod, Opts#{Key => Enough}),
         ok = wasmtime:destroy(Inst),
         ?assertMatch({Key, ?WASMTIME_ERROR(limit, Kind)}, {Key, instantiate(Mod, Opts#{Key => Enough - 1})})
     end || {Key, Enough, Kind} <- [{max_instances, 3, instance_limit}, {max_tables, 1, table_limit},
                                    {max_table_elements, 4, table_limit},
                                    {memory_limit, ?PAGE, memory_limit},
                                    {total_memory_limit, 3 * ?PAGE, memory_limit}]],
    Inst = inst(Mod, Opts#{total_memory_limit => 4 * ?PAGE}),
    ?assertEqual([{ok, [1]}, {ok, [-1]}], [wasmtime:call(Inst, "grow", [1]) || _ <- [1, 2]]),
    ok = wasmtime:destroy(Inst).

%% Each module takes its places in the pool; one instance too many gets none of them.
t_pool(_) ->
    Room = #{core_instances => 12, memories => 12},
    [begin
         Compile = wasmtime_test:pool(Pool),
         {Mod, Opts} = main(Compile),
         {ok, Template} = wasmtime:prepare(Mod, wasmtime_test:with_runner(Opts)),
         [begin
              {ok, Inst} = wasmtime:instantiate(Template),
              ?assertEqual({ok, <<"base">>}, wasmtime:read_memory(Inst, 0, 4)),
              {ok, []} = wasmtime:call(Inst, "store", [0, Round]),
              {ok, []} = wasmtime:call(Inst, "store_middle", [0, Round]),
              ok = wasmtime:write_memory(Inst, "own", 0, <<Round>>),
              ?assertEqual(3, maps:get(used, wasmtime:pool_info(Mod))),
              ?assertMatch({error, #{class := pool, kind := pool_exhausted, key := Key}},
                           wasmtime:instantiate(Template)),
              ok = wasmtime:destroy(Inst),
              ?assertMatch(#{used := 0}, wasmtime:pool_info(Mod))
          end || Round <- lists:seq(1, wasmtime_test:rounds(5, 20, 200))],
         ?assertMatch(#{verify_failures := 0}, wasmtime_test:restored(Mod))
     end || {Key, Pool} <- [{instances, Room#{instances => 1}}, {core_instances, Room#{core_instances => 5}},
                            {memories, Room#{memories => 5}}, {tables, Room#{tables => 1}}]].

%% A template is for many processes at once, with artifacts from files too.
t_concurrent(Config) ->
    Dir = wasmtime_test:temp(Config, "links"),
    Load = fun(Name) ->
        {ok, Bin} = wasmtime:serialize(mod(Name)),
        {ok, Mod} = wasmtime:deserialize_file(wasmtime_test:write(Dir, atom_to_list(Name), Bin)),
        Mod
    end,
    Links = [{"base", Load(link_base)}, {"middle", Load(link_middle)}],
    {ok, Template} = wasmtime:prepare(Load(link_main), wasmtime_test:with_runner(#{links => Links})),
    Work = fun(N) ->
        {ok, Inst} = wasmtime:instantiate(Template),
        {ok, []} = wasmtime:call(Inst, "count", [N]),
        Result = {wasmtime:call(Inst, "quad", [N]), wasmtime:call(Inst, "bump", [])},
        ok = wasmtime:destroy(Inst),
        {N, Result}
    end,
    Callers = [wasmtime_test:caller(fun() -> Work(N) end)
               || N <- lists:seq(1, wasmtime_test:rounds(20, 100, 2000))],
    [receive
         {Pid, {N, Result}} -> ?assertEqual({{ok, [4 * N]}, {ok, [N + 1, N + 1]}}, Result);
         {'DOWN', Monitor, process, Pid, Reason} when Reason =/= normal -> error(Reason)
     end || {Pid, Monitor} <- Callers].

%% ---- what is left ---------------------------------------------------------------------------

%% However it ends, and wherever an instantiation stops, nothing is left of any module.
t_nothing_left(_) ->
    Before = maps:remove(threads_parked, wasmtime_test:settled()),
    in_process(fun() ->
        [ended(How, Compile) || _ <- lists:seq(1, wasmtime_test:rounds(2, 10, 200)),
                                How <- [destroy, drop, kill, trap, host, segment, limit, mistyped],
                                Compile <- [#{}, wasmtime_test:pool(#{instances => 1, core_instances => 9, memories => 9})]]
    end),
    ?assertEqual(Before, maps:remove(threads_parked, wasmtime_test:settled())).

ended(How, Compile) ->
    {Mod, #{links := Links} = Opts} = main(Compile),
    With = fun(Link, Extra) ->
        instantiate(mod({wat, "(module (memory 1))"}, Compile), Extra#{links => Links ++ [{"x", Link}]})
    end,
    case How of
        destroy -> ok = wasmtime:destroy(inst(Mod, Opts));
        drop -> in_process(fun() -> wasmtime:call(inst(Mod, Opts), "bump", []) end);
        kill -> killed(Mod, Opts);
        trap -> ?WASMTIME_TRAP(_) = With(mod(start_trap, Compile), #{});
        segment -> ?WASMTIME_TRAP(_) = With(mod(segment_trap, Compile), #{});
        limit -> ?WASMTIME_ERROR(limit, _) = With(mod(memory, Compile), #{memory_limit => ?PAGE});
        mistyped -> ?WASMTIME_ERROR(link, _) = With(mod(import_memory, Compile), #{});
        host -> ?WASMTIME_ERROR(host, _) = With(mod(link_start, Compile),
                                                #{{"env", "one"} => fun(_, _) -> exit(no) end})
    end,
    wait_until(fun() -> erlang:garbage_collect(), maps:get(used, wasmtime:pool_info(Mod)) =:= 0 end).

killed(Mod, Opts) ->
    {Pid, Monitor} = wasmtime_test:caller(fun() -> wasmtime:call(inst(Mod, Opts), "spin", []) end),
    wasmtime_test:calling(Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.
