%% The contract of the public API as tables: every function, option, default, error kind and feature
%% that users may build on. A row that the application lacks fails, and so does what it has beyond.
-module(wasmtime_api_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").

all() -> wasmtime_test:cases(?MODULE).

suite() -> wasmtime_test:suite().

-define(MIB, 1048576).

%% ---- functions ------------------------------------------------------------------------------

functions() ->
    [{compile, [1, 2]}, {wat2wasm, [1]}, {validate, [1, 2]}, {serialize, [1, 2]},
     {deserialize, [1, 2]}, {deserialize_file, [1, 2]}, {cached, [3]}, {preinit, [3]},
     {module_options, [1]}, {module_kind, [1]}, {imports, [1]}, {exports, [1]},
     {features, [0]}, {version, [0]},
     {prepare, [2]}, {instantiate, [1, 2]}, {call, [3, 4]}, {call_async, [3, 4]}, {await, [2, 3]},
     {call_ref, [3, 4]}, {interrupt, [1]}, {destroy, [1]}, {gc, [1]}, {fuel_remaining, [1]},
     {ref, [1]}, {run, [1, 2]}, {handle_host_call, [2]}, {import_fun, [2]}, {info, [1]},
     {pool_info, [1]},
     {read_memory, [3, 4]}, {write_memory, [3, 4]}, {memory_size, [1, 2]},
     {global_get, [2]}, {global_set, [3]},
     {table_size, [2]}, {table_get, [3]}, {table_set, [4]}, {table_grow, [3, 4]},
     {ref_info, [1]}, {funcref, [2]}, {externref, [2]}, {externref_data, [1]},
     {struct_get, [2]}, {struct_set, [3]}, {struct_new, [3]},
     {array_len, [1]}, {array_get, [2]}, {array_set, [3]}, {array_new, [3]},
     {send, [2]}, {close, [1]}, {read_output, [1]}].

%% Each function of the table is there, and no other.
t_functions(_) ->
    Listed = [{Name, Arity} || {Name, Arities} <- functions(), Arity <- Arities],
    Exported = wasmtime:module_info(exports) -- [{module_info, 0}, {module_info, 1}],
    ?assertEqual([], Listed -- Exported),
    ?assertEqual([], Exported -- Listed).

%% Each has a specification and a documentation of its own, or is the short form of one that has.
t_documented(_) ->
    Path = filename:join(wasmtime_test:root(), "src/wasmtime.erl"),
    {ok, Text} = file:read_file(Path),
    Missing = [Name || {Name, _} <- functions(),
                       nomatch =:= re:run(Text, ["(?m)^%% @(doc|equiv).*\\n(%%.*\\n)*-spec ",
                                                 atom_to_list(Name), "\\("])],
    ?assertEqual([], Missing).

%% ---- options --------------------------------------------------------------------------------

compile_defaults() ->
    #{fuel => false, opt_level => speed, proposals => #{}, allocator => on_demand}.

pooling_defaults() ->
    #{instances => 1000, max_memory => 256 * ?MIB, keep_resident => 0, core_instances => 1000,
      tables => 1000, memories => 1000, verify => false}.

proposals() ->
    [simd, relaxed_simd, relaxed_simd_deterministic, bulk_memory, multi_value, multi_memory,
     memory64, tail_call, wide_arithmetic, custom_page_sizes, threads, reference_types,
     function_references, gc, exceptions].

instance_defaults() ->
    #{imports => #{}, memory_limit => 256 * ?MIB, total_memory_limit => unlimited,
      max_tables => 100, max_table_elements => 10_000_000, max_instances => 10,
      host_timeout => 30_000, inbox_limit => 16 * ?MIB,
      runner => thread, links => []}.

wasi_defaults() ->
    #{args => [], env => [], dirs => [], stdin => none, stdout => none, stderr => none,
      output_limit => 16 * ?MIB, clocks => all}.

%% Every compile option may be given, and its default is that of the table.
t_compile_options(_) ->
    defaults(fun wasmtime_options:compile/1, compile_defaults()),
    Pooled = fun(Pool) -> wasmtime_options:compile(#{allocator => pooling, pooling => Pool}) end,
    defaults(Pooled, pooling_defaults()),
    {ok, #{pooling := Pool}} = Pooled(#{}),
    ?assertEqual(pooling_defaults(), Pool),
    ?assertEqual({ok, compile_defaults()}, wasmtime_options:compile(#{})).

%% The complete options that a module reports are those of the table.
t_module_options(_) ->
    Mod = wasmtime_test:mod(add),
    ?assertEqual(compile_defaults(), wasmtime:module_options(Mod)).

%% Every proposal may be switched, and no other.
t_proposals(_) ->
    [?assertMatch({ok, #{proposals := #{P := false}}},
                  wasmtime_options:compile(#{proposals => #{P => false}})) || P <- proposals()],
    ?assertMatch({error, #{key := threadz}},
                 wasmtime_options:compile(#{proposals => #{threadz => true}})).

%% Every instantiate option may be given, and giving its default changes nothing.
t_instance_options(_) ->
    defaults(fun instance/1, instance_defaults()),
    defaults(fun(Wasi) -> instance(#{wasi => Wasi}) end, wasi_defaults()).

%% Host calls and stream output go to the process that asks, unless others are named.
t_processes(_) ->
    {ok, {Complete, _}} = instance(#{}),
    ?assertMatch(#{host := undefined, stream := undefined}, Complete),
    {ok, {Named, _}} = instance(#{host => self(), stream => self()}),
    ?assertEqual({self(), self()}, {map_get(host, Named), map_get(stream, Named)}).

%% A component may be made of more instances.
t_component_instances(_) ->
    {ok, #{max_instances := Max}, _} = wasmtime_options:instance(instantiate, #{}, component),
    ?assertEqual(100, Max).

%% Both call options may be given; without them a call has no deadline and no fuel of its own.
t_call_options(_) ->
    ?assertEqual({ok, #{timeout => infinity, fuel => undefined}}, wasmtime_options:call(#{})),
    ?assertEqual({ok, #{timeout => 5, fuel => 7}}, wasmtime_options:call(#{timeout => 5, fuel => 7})).

instance(Opts) ->
    {ok, Complete, Funs} = wasmtime_options:instance(instantiate, Opts, module),
    {ok, {Complete, Funs}}.

%% Each key alone, with its default, gives what no key gives.
defaults(Check, Defaults) ->
    {ok, Expected} = Check(#{}),
    [?assertEqual({Key, {ok, Expected}}, {Key, Check(#{Key => Value})})
     || {Key, Value} <- maps:to_list(Defaults)].

%% ---- errors ---------------------------------------------------------------------------------

%% The kinds that the contract names; the table of all stands in docs/errors.md.
kinds() ->
    [badarg, badarity, busy, destroyed, unknown_export, too_many_configurations, pool_too_large,
     pool_exhausted, host_error, host_timeout, host_down, timeout, interrupt, exit, memory_limit,
     table_limit, instance_limit, wrong_instance, inbox_full, closed, init, table_changed,
     unsupported_import, unsupported_type, unsupported, malformed, unavailable, overload,
     out_of_fuel, cycle, untrusted, corrupted, incompatible].

%% Each of them is one that the library gives.
t_kinds(_) ->
    Native = [Kind || {kind, Kind} <- wasmtime_nif:classes_and_kinds()],
    ?assertEqual([], kinds() -- Native).

%% ---- values, features, messages -------------------------------------------------------------

t_features(_) ->
    Features = wasmtime:features(),
    ?assertEqual([compiler, components, pagemap_scan, wasi, wat], lists:sort(maps:keys(Features))),
    [?assert(is_boolean(Value)) || Value <- maps:values(Features)],
    ?assertMatch({match, _}, re:run(wasmtime:version(), "^48\\.[0-9]+\\.[0-9]+$")).

%% What a pool and an instance tell of themselves.
t_info_keys(_) ->
    Mod = wasmtime_test:mod(memory, wasmtime_test:pool(#{})),
    ?assertMatch(#{total := 4, used := 0, warm := _, resets := _, bytes_restored := _},
                 wasmtime:pool_info(Mod)),
    [begin
         {ok, Inst} = wasmtime:instantiate(Mod, #{runner => Runner}),
         ?assertMatch(#{state := idle, runner := Runner, calls := 0, host_calls := 0},
                      wasmtime:info(Inst)),
         ?assert(is_reference(wasmtime:ref(Inst))),
         ok = wasmtime:destroy(Inst)
     end || Runner <- [thread, scheduler]].

%% Kinds of imports and exports.
t_external_kinds(_) ->
    Text = "(module (import \"e\" \"f\" (func)) (import \"e\" \"g\" (global i32))"
           " (import \"e\" \"t\" (table 1 funcref)) (import \"e\" \"m\" (memory 1))"
           " (import \"e\" \"x\" (tag)) (export \"f\" (func 0)) (export \"g\" (global 0))"
           " (export \"t\" (table 0)) (export \"m\" (memory 0)) (export \"x\" (tag 0)))",
    Mod = wasmtime_test:mod({wat, Text}, #{proposals => #{exceptions => true}}),
    Kinds = [func, global, table, memory, tag],
    ?assertEqual([{<<"e">>, Name, Kind} || {Name, Kind} <- lists:zip(names(), Kinds)],
                 wasmtime:imports(Mod)),
    ?assertEqual(lists:zip(names(), Kinds), wasmtime:exports(Mod)),
    ?assertEqual(module, wasmtime:module_kind(Mod)).

names() -> [<<"f">>, <<"g">>, <<"t">>, <<"m">>, <<"x">>].
