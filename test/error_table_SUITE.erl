%% The documented table of errors is that of the library, and each error is provoked where a program
%% can.
-module(error_table_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-import(wasmtime_test, [source/1, mod/1, mod/2, inst/1, inst/2]).

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

%% {Class, Kind} of every row of docs/errors.md.
rows() ->
    {ok, Text} = file:read_file(filename:join(wasmtime_test:root(), "docs/errors.md")),
    rows(Text).

rows(Text) ->
    {match, Rows} = re:run(Text, "(?m)^\\| `([a-z]+)` \\| `([a-z_]+)` \\| ([^|]*)\\|$",
                           [global, {capture, [1, 2, 3], binary}]),
    [{binary_to_atom(Class), binary_to_atom(Kind)} || [Class, Kind, _] <- Rows,
                                                      lists:member(binary_to_atom(Class), classes())].

native(Tag) -> [Name || {T, Name} <- wasmtime_nif:classes_and_kinds(), T =:= Tag].

classes() -> native(class).

%% Every class and kind of the library is documented, and no other.
t_table_is_complete(_) ->
    {Classes, Kinds} = lists:unzip(rows()),
    ?assertEqual(lists:sort(native(class)), lists:usort(Classes)),
    ?assertEqual(lists:sort(native(kind)), lists:usort(Kinds)).

t_no_row_twice(_) ->
    ?assertEqual([], rows() -- lists:usort(rows())).

%% Every row is provoked here, or is known to need what a test cannot arrange.
t_every_row_is_provoked(_) ->
    Provoked = [Row || {Row, _} <- provocations()],
    ?assertEqual([], (rows() -- Provoked) -- beyond_a_test()),
    ?assertEqual([], Provoked -- rows()),
    ?assertEqual([], [Row || Row <- beyond_a_test(), lists:member(Row, Provoked)]).

%% And is what the table says.
t_provoked(_) ->
    [begin
         {error, #{class := C, kind := K, message := Message}} = Provoke(),
         ?assertEqual({Class, Kind}, {C, K}),
         ?assert(is_binary(Message) andalso Message =/= <<>>)
     end || {{Class, Kind}, Provoke} <- provocations()].

%% The rows that need a machine without memory or threads, a node without processes, a build without a compiler, a bug, or a
%% feature of another release (components, stack switching).
beyond_a_test() ->
    Machine = [{compile, out_of_memory}, {limit, thread_limit}, {limit, process_limit}],
    Build = [{compile, unavailable}, {preinit, unavailable}],
    Bugs = [{internal, internal}, {internal, panic}],
    Traps = [{trap, Kind} || Kind <- [unhandled_tag, continuation_already_consumed, disabled_opcode]],
    Machine ++ Build ++ Bugs ++ Traps ++ component_rows().

component_rows() ->
    {ok, Text} = file:read_file(filename:join(wasmtime_test:root(), "docs/errors.md")),
    [_, After] = binary:split(Text, <<"## Traps of components">>),
    [Section | _] = binary:split(After, <<"\n## ">>),
    rows(Section).

provocations() ->
    modules() ++ instances() ++ pools() ++ calls() ++ streams() ++ memory() ++ references()
        ++ preinit() ++ traps().

modules() ->
    Compile = fun(Text) -> fun() -> wasmtime:compile({wat, Text}) end end,
    [{{compile, badarg}, fun() -> wasmtime:compile(source(add), #{fuel => 1}) end},
     {{compile, malformed}, Compile("(module")},
     {{compile, invalid}, Compile("(module (func (result i32)))")},
     {{compile, unsupported}, Compile("(component)")},
     {{compile, corrupted}, fun() -> wasmtime:deserialize(<<"no artifact">>) end},
     {{compile, untrusted}, fun() ->
         {ok, Bin} = wasmtime:serialize(mod(add)),
         wasmtime:deserialize(Bin, #{key => <<"key">>})
     end},
     {{compile, incompatible}, fun() ->
         {ok, Bin} = wasmtime:serialize(mod(add)),
         wasmtime:deserialize(Bin, #{fuel => true})
     end},
     {{compile, file}, fun() -> wasmtime:deserialize_file("/nonexistent/file") end},
     {{compile, too_many_configurations}, fun too_many/0},
     {{compile, pool_too_large}, fun pool_too_large/0}].

too_many() ->
    wasmtime_test:in_process(fun() -> too_many(0, []) end).

too_many(I, Mods) ->
    Bits = [multi_value, multi_memory, memory64, tail_call, wide_arithmetic, custom_page_sizes],
    Set = maps:from_list([{P, I band (1 bsl B) =/= 0}
                          || {P, B} <- lists:zip(Bits, lists:seq(0, length(Bits) - 1))]),
    case wasmtime:compile({wat, "(module)"}, #{proposals => Set}) of
        {ok, Mod} when I < 60 -> too_many(I + 1, [Mod | Mods]);
        Error -> Error
    end.

%% 64 pools of 40 TB do not fit into the address space of any machine.
pool_too_large() ->
    wasmtime_test:settled(),
    wasmtime_test:in_process(fun() -> pool_too_large(1, []) end).

pool_too_large(I, Mods) ->
    Pool = #{instances => 10000 - I, memories => 10000, max_memory => 1 bsl 32},
    case wasmtime:compile(source(memory), #{allocator => pooling, pooling => Pool}) of
        {ok, Mod} when I < 30 -> pool_too_large(I + 1, [Mod | Mods]);
        Error -> Error
    end.

instances() ->
    New = fun(Name, Opts) -> fun() -> wasmtime:instantiate(mod(Name), Opts) end end,
    Wrong = "(module (func (export \"memory\")))",
    [{{link, unknown_import}, New(host, #{})},
     {{link, unsupported_import}, New(import_memory, #{})},
     {{link, incompatible_import}, New(import_memory, #{links => [{"env", mod({wat, Wrong})}]})},
     {{link, cycle}, New(add, #{links => [{"env", mod(import_memory)}]})},
     {{instantiate, badarg}, New(add, #{nonsense => 1})},
     {{instantiate, out_of_memory}, fun() ->
         Huge = mod({wat, "(module (memory i64 0x100000000))"}, #{proposals => #{memory64 => true}}),
         wasmtime:instantiate(Huge, #{memory_limit => unlimited})
     end},
     {{limit, memory_limit}, New(memory, #{memory_limit => 1})},
     {{limit, table_limit}, New(tables, #{max_tables => 1})},
     {{limit, instance_limit}, New(add, #{max_instances => 0})},
     {{pool, pool_exhausted}, fun() ->
         Mod = mod(memory, wasmtime_test:pool(#{instances => 1})),
         Only = inst(Mod, #{}),
         Result = wasmtime:instantiate(Mod),
         ok = wasmtime:destroy(Only),
         Result
     end}].

pools() ->
    Request = fun(Opts, Do) -> fun() ->
        {ok, Pool} = wasmtime_pool:start_link(maps:merge(#{module => mod(add)}, Opts)),
        try Do(Pool) after wasmtime_pool:stop(Pool) end
    end end,
    Add = fun(Pool) -> wasmtime_pool:request(Pool, "add", [1, 2]) end,
    [{{pool, badarg}, Request(#{}, fun(Pool) -> wasmtime_pool:request(Pool, "add", [1, 2], #{x => 1}) end)},
     {{pool, overload}, Request(#{size => 1, max_queue => 0},
                                fun(Pool) -> wasmtime_pool:run(Pool, fun(_) -> Add(Pool) end) end)},
     {{pool, closed}, Request(#{}, fun(Pool) -> {ok, 0} = wasmtime_pool:drain(Pool), Add(Pool) end)},
     {{instantiate, init}, fun() -> wasmtime_test:in_process(fun() ->
         process_flag(trap_exit, true),
         wasmtime_server:start_link(#{module => mod(add), init => fun(_) -> no end})
     end) end}].

calls() ->
    Call = fun(Name, Export, Args) ->
        fun() -> wasmtime_test:with_inst(Name, #{}, fun(I) -> wasmtime:call(I, Export, Args) end) end
    end,
    Host = fun(Fun, Opts) ->
        All = maps:merge(wasmtime_test:one(Fun), Opts),
        fun() -> wasmtime_test:with_inst(host, All, fun(I) -> wasmtime:call(I, "one", [1]) end) end
    end,
    [{{call, badarg}, Call(add, "add", [1, a])},
     {{call, badarity}, Call(add, "add", [1])},
     {{call, unknown_export}, Call(add, "sub", [1, 2])},
     {{call, unsupported}, fun() ->
         wasmtime_test:with_inst(add, #{}, fun wasmtime:fuel_remaining/1)
     end},
     {{call, destroyed}, fun() ->
         Inst = inst(add),
         ok = wasmtime:destroy(Inst),
         wasmtime:call(Inst, "add", [1, 2])
     end},
     {{exit, exit}, fun() ->
         wasmtime_test:with_inst(import_wasi, #{wasi => #{}},
                                 fun(I) -> wasmtime:call(I, "exit", [3]) end)
     end},
     {{host, host_error}, Host(fun(_, _) -> error(oops) end, #{})},
     {{host, host_down}, fun() ->
         Dead = spawn(fun() -> ok end),
         wasmtime_test:wait_until(fun() -> not is_process_alive(Dead) end),
         (Host(fun(_, _) -> {ok, [1]} end, #{host => Dead}))()
     end},
     {{host, host_timeout}, Host(fun(_, _) -> timer:sleep(200), {ok, [1]} end, #{host_timeout => 10})}].

streams() ->
    Send = fun(Data, Opts, Before) -> fun() ->
        wasmtime_test:with_inst(add, Opts, fun(I) -> Before(I), wasmtime:send(I, Data) end)
    end end,
    Nothing = fun(_) -> ok end,
    [{{stream, badarg}, Send(a, #{}, Nothing)},
     {{stream, inbox_full}, Send(<<"ab">>, #{inbox_limit => 1}, Nothing)},
     {{stream, closed}, Send(<<"a">>, #{}, fun wasmtime:close/1)}].

memory() ->
    Memory = fun(Fun) -> fun() -> wasmtime_test:with_inst(memory, #{}, Fun) end end,
    [{{memory, badarg}, Memory(fun(I) -> wasmtime:read_memory(I, -1, 1) end)},
     {{memory, memory_out_of_bounds}, Memory(fun(I) -> wasmtime:read_memory(I, 1 bsl 40, 1) end)},
     {{memory, unknown_export}, Memory(fun(I) -> wasmtime:memory_size(I, "other") end)},
     {{call, busy}, fun busy/0}].

busy() ->
    Inst = inst(spin),
    {Pid, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, "spin", []) end),
    wasmtime_test:wait_until(fun() -> wasmtime:memory_size(Inst) =/= {ok, {1, 65536}} end),
    Result = wasmtime:memory_size(Inst),
    ok = wasmtime:destroy(Inst),
    receive {Pid, _} -> Result end.

references() ->
    Refs = fun(Opts, Fun) -> fun() -> reference_SUITE:with_refs(Opts, Fun) end end,
    [{{call, wrong_instance}, Refs(#{}, fun(I) ->
         {ok, Ref} = wasmtime:externref(I, foreign),
         reference_SUITE:with_refs(#{}, fun(J) -> wasmtime:call(J, "extern", [Ref]) end)
     end)},
     {{ref, badarg}, Refs(#{}, fun(I) ->
         {ok, [Func]} = wasmtime:call(I, "get_double", []),
         wasmtime:externref_data(Func)
     end)},
     {{ref, badarity}, Refs(#{}, fun(I) -> wasmtime:struct_new(I, {param, "point", 1}, []) end)},
     {{ref, out_of_bounds}, Refs(#{}, fun(I) ->
         {ok, [Point]} = wasmtime:call(I, "new_point", [1, 2]),
         wasmtime:struct_get(Point, 2)
     end)},
     {{ref, immutable}, Refs(#{}, fun(I) ->
         {ok, [Point]} = wasmtime:call(I, "new_point", [1, 2]),
         wasmtime:struct_set(Point, 1, 3.0)
     end)},
     {{global, badarg}, Refs(#{}, fun(I) -> wasmtime:global_get(I, global) end)},
     {{global, unknown_export}, Refs(#{}, fun(I) -> wasmtime:global_get(I, "point") end)},
     {{global, immutable}, Refs(#{}, fun(I) -> wasmtime:global_set(I, "const", 1) end)},
     {{table, badarg}, Refs(#{}, fun(I) -> wasmtime:table_get(I, "table", -1) end)},
     {{table, unknown_export}, Refs(#{}, fun(I) -> wasmtime:table_size(I, "point") end)},
     {{table, table_out_of_bounds}, Refs(#{}, fun(I) -> wasmtime:table_get(I, "table", 1) end)},
     {{table, table_limit}, Refs(#{}, fun(I) -> wasmtime:table_grow(I, "table", 2) end)},
     {{limit, out_of_memory}, Refs(#{memory_limit => unlimited},
                                   fun heap_full/1)}].

%% The heap has addresses for 4 GiB.
heap_full(Inst) ->
    {ok, [_Kept]} = wasmtime:call(Inst, "new_bytes", [1000]),
    wasmtime:call(Inst, "new_bytes", [-100]).

preinit() ->
    Preinit = fun(Name, Init) -> fun() ->
        Proposals = #{threads => true, gc => true, function_references => true},
        wasmtime:preinit(source(Name), #{compile => #{proposals => Proposals}}, Init)
    end end,
    [{{preinit, badarg}, Preinit(preinit, init)},
     {{preinit, init}, Preinit(preinit, fun(_) -> no end)},
     {{preinit, malformed}, fun() -> wasmtime:preinit(<<"x">>, #{}, []) end},
     {{preinit, unsupported}, Preinit(preinit_reserved, [])},
     {{preinit, unsupported_import}, Preinit(import_table, [])},
     {{preinit, unsupported_type}, Preinit(preinit_gc_global, [])},
     {{preinit, table_changed}, Preinit(preinit_host_ref, ["init"])}].

traps() ->
    Trap = fun(Name, Proposals, Kinds) ->
        [{{trap, Kind}, fun() ->
            Inst = wasmtime_test:inst(Name, #{}, #{proposals => maps:from_keys(Proposals, true)}),
            Result = wasmtime:call(Inst, atom_to_binary(Kind), []),
            ok = wasmtime:destroy(Inst),
            Result
        end} || Kind <- Kinds]
    end,
    Trap(traps, [], [stack_overflow, memory_out_of_bounds, table_out_of_bounds,
                     indirect_call_to_null, bad_signature, integer_overflow,
                     integer_division_by_zero, bad_conversion_to_integer, unreachable])
    ++ Trap(traps_threads, [threads], [heap_misaligned, atomic_wait_non_shared_memory])
    ++ Trap(traps_gc, [gc, function_references],
            [null_reference, array_out_of_bounds, allocation_too_large, cast_failure])
    ++ Trap(traps_exceptions, [exceptions], [uncaught_exception])
    ++ [{{trap, timeout}, fun() -> spin(#{}, #{timeout => 10}) end},
        {{trap, out_of_fuel}, fun() -> spin(#{fuel => true}, #{fuel => 1000}) end},
        {{trap, interrupt}, fun interrupted/0},
        {{trap, invalid_argument}, fun() ->
            wasmtime_test:with_inst(preview1, #{wasi => #{}},
                                    fun(I) -> wasmtime:call(I, "proc_raise", [99]) end)
        end}].

spin(CompileOpts, CallOpts) ->
    Inst = wasmtime_test:inst(spin, #{}, CompileOpts),
    Result = wasmtime:call(Inst, "spin", [], CallOpts),
    ok = wasmtime:destroy(Inst),
    Result.

interrupted() ->
    Inst = inst(spin),
    {Pid, _} = wasmtime_test:caller(fun() -> wasmtime:call(Inst, "spin", []) end),
    wasmtime_test:wait_until(fun() -> wasmtime:interrupt(Inst) =:= ok end),
    receive {Pid, Result} -> ok = wasmtime:destroy(Inst), Result end.
